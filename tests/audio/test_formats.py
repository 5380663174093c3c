import itertools

import pytest

from voxserve.audio.formats import FORMATS

PCM = bytes(range(200))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("cuts", [[100], [2, 50], [10, 20, 30]])
def test_any_cuts_give_the_same_stream(name: str, cuts: list[int]) -> None:
    one_shot, cut = FORMATS[name].encoder(24_000), FORMATS[name].encoder(24_000)
    edges = [0, *(2 * at for at in cuts), len(PCM)]
    pieces = [cut.feed(PCM[a:b]) for a, b in itertools.pairwise(edges)]
    expected = one_shot.feed(PCM) + one_shot.finish()
    assert b"".join(pieces) + cut.finish() == expected


@pytest.mark.parametrize("name", FORMATS)
def test_whole_carries_the_samples_unchanged(name: str) -> None:
    assert FORMATS[name].whole(PCM, 24_000).endswith(PCM)


def test_content_type_of_pcm_names_its_rate() -> None:
    content_type = FORMATS["pcm"].content_type.format(rate=24_000)
    assert content_type == "audio/pcm; rate=24000; channels=1"
