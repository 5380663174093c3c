import itertools
import subprocess
import sys

import pytest

from tests.audio.sounds import voice
from voxserve.audio.formats import FORMATS

PCM = voice(150, 0.5).tobytes()
RAW = ("wav", "pcm")


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("cuts", [[6000], [1, 700], [960, 1920, 2500]])
def test_any_cuts_give_the_same_stream(name: str, cuts: list[int], whole: bool) -> None:
    one_shot, cut = (FORMATS[name].encoder(24_000, 24_000, whole) for _ in range(2))
    edges = [0, *(2 * at for at in cuts), len(PCM)]
    pieces = [cut.feed(PCM[a:b]) for a, b in itertools.pairwise(edges)]
    expected = one_shot.feed(PCM) + one_shot.finish()
    assert without_serial(b"".join(pieces) + cut.finish()) == without_serial(expected)
    assert not whole or not any(pieces)
    cut.close()
    one_shot.close()


def without_serial(data: bytes) -> bytes:
    """An Ogg stream without the number that each draws, and the checksums that depend on it."""
    head, *pages = data.split(b"OggS")
    return head + b"".join(page[:10] + page[14:18] + page[22:] for page in pages)


@pytest.mark.parametrize("name", RAW)
def test_whole_carries_the_samples_unchanged(name: str) -> None:
    encoder = FORMATS[name].encoder(24_000, 24_000, True)
    encoder.feed(PCM)
    assert encoder.finish().endswith(PCM)


def test_content_type_of_pcm_names_its_rate() -> None:
    content_type = FORMATS["pcm"].content_type.format(rate=24_000)
    assert content_type == "audio/pcm; rate=24000; channels=1"


def test_raw_formats_load_no_library() -> None:
    program = """
import sys
from voxserve.audio.output import output_for
for name in ("wav", "pcm"):
    for whole in (False, True):
        stream = output_for(name, 24_000, None, 1.0).open(whole=whole)
        stream.feed(bytes(9600))
        stream.finish()
assert not {"av", "soxr"} & set(sys.modules), sorted(sys.modules)
stream = output_for("mp3", 24_000, 48_000, 1.0).open(whole=False)
assert {"av", "soxr"} <= set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
