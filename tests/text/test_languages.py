"""Languages by name and by tag."""

import pytest

from voxserve.text.languages import language_name


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("English", "english"),
        ("en", "english"),
        ("EN_us", "english"),
        ("zh-Hant-TW", "chinese"),
        ("Auto", "auto"),
        ("Klingon", "klingon"),
    ],
)
def test_language_name(given: str, name: str) -> None:
    assert language_name(given) == name
