import pytest

from voxserve.api.voices import OPENAI_VOICES, public_voices, resolve_voice
from voxserve.errors import InvalidRequestError
from voxserve.plugin import ModelInfo, Voice


def info(*names: str) -> ModelInfo:
    voices = tuple(Voice(name) for name in names)
    default = names[0] if names else None
    return ModelInfo("model", voices, default, ("en",), {})


MODEL = info("Ryan", "vivian", "echo")


@pytest.mark.parametrize(
    ("wanted", "voice"),
    [
        (None, "Ryan"),
        ("RYAN", "Ryan"),
        (" Vivian ", "vivian"),
        ("Narrator", "vivian"),
        ("echo", "echo"),
    ],
)
def test_names(wanted: str | None, voice: str) -> None:
    assert resolve_voice(wanted, MODEL, {"narrator": "Vivian"}) == voice


def test_openai_names_map_to_something_always_the_same() -> None:
    assert len(OPENAI_VOICES) == 13
    mapped = [resolve_voice(name, MODEL, {}) for name in OPENAI_VOICES]
    assert mapped == [resolve_voice(name.upper(), MODEL, {}) for name in OPENAI_VOICES]
    assert set(mapped) == {"Ryan", "vivian", "echo"}
    assert resolve_voice("alloy", MODEL, {"alloy": "vivian"}) == "vivian"
    assert resolve_voice("alloy", info(), {}) is None


@pytest.mark.parametrize("wanted", ["nobody", "", "viviann"])
def test_unknown_voice(wanted: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        resolve_voice(wanted, MODEL, {})
    assert (refused.value.code, refused.value.param) == ("voice_not_found", "voice")
    assert "Ryan, vivian, echo" in refused.value.message
    assert ("nearest: vivian" in refused.value.message) is (wanted == "viviann")


def test_list_marks_the_default() -> None:
    listed = public_voices(MODEL)
    assert listed["voices"] == ["Ryan", "vivian", "echo"]
    assert isinstance(listed["data"], list)
    assert [voice["default"] for voice in listed["data"]] == [True, False, False]
