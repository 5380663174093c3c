import numpy as np
import pytest

from tests.audio.sounds import RATE_HZ, decode, pitch_hz, voice
from voxserve.audio.formats import FORMATS
from voxserve.audio.output import Piece, output_for
from voxserve.errors import InvalidRequestError

RATES_HZ = (None, 8000, 16_000, 22_050, 24_000, 44_100, 48_000)
SAMPLES = voice(150, 1.0)
CHUNK = 3840


def spoken(name: str, rate_hz: int | None, speed: float, *, whole: bool = False) -> list[Piece]:
    stream = output_for(name, RATE_HZ, rate_hz, speed).open(whole=whole)
    pcm = SAMPLES.tobytes()
    pieces = [stream.feed(pcm[at : at + CHUNK]) for at in range(0, len(pcm), CHUNK)]
    pieces.append(stream.finish())
    stream.close()
    return pieces


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("speed", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("rate_hz", RATES_HZ)
def test_samples_are_counted_exactly(rate_hz: int | None, speed: float, whole: bool) -> None:
    pieces = spoken("pcm", rate_hz, speed, whole=whole)
    total = sum(piece.samples for piece in pieces)
    assert all(len(piece.data) == 2 * piece.samples for piece in pieces)
    assert total == round(round(RATE_HZ / speed) * (rate_hz or RATE_HZ) / RATE_HZ)


@pytest.mark.parametrize("name", ["mp3", "opus", "aac", "flac"])
def test_samples_come_with_the_bytes_that_hold_them(name: str) -> None:
    pieces = spoken(name, None, 1.0)
    assert all(bool(piece.data) == bool(piece.samples) for piece in pieces[:-1])
    assert sum(piece.samples for piece in pieces) == RATE_HZ
    whole = spoken(name, None, 1.0, whole=True)
    assert not any(piece.data for piece in whole[:-1]) and whole[-1].samples == RATE_HZ


@pytest.mark.parametrize("name", ["wav", "pcm"])
@pytest.mark.parametrize("chunk_ms", [5, 19])
def test_no_stream_begins_with_less_than_20_ms(name: str, chunk_ms: int) -> None:
    stream = output_for(name, RATE_HZ, None, 1.0).open(whole=False)
    pcm = bytes(2 * chunk_ms * RATE_HZ // 1000)
    first = next(piece for _ in range(10) if (piece := stream.feed(pcm)).data)
    assert first.samples >= 0.02 * RATE_HZ
    short = output_for(name, RATE_HZ, None, 1.0).open(whole=False)
    assert short.feed(pcm) == Piece()
    assert short.finish().data.endswith(pcm), "however short it is in all"


def test_speed_and_rate_together_keep_the_pitch() -> None:
    data = b"".join(piece.data for piece in spoken("flac", 16_000, 2.0))
    made, rate_hz = decode(data)
    assert (rate_hz, len(made)) == (16_000, 8000)
    assert pitch_hz(made, rate_hz) == pytest.approx(pitch_hz(SAMPLES, RATE_HZ), rel=0.03)


@pytest.mark.parametrize("rate_hz", [8000, 16_000, 22_050, 24_000, 44_100])
def test_opus_plays_at_48_khz_alone(rate_hz: int) -> None:
    with pytest.raises(InvalidRequestError, match="opus has 48000 only") as refused:
        output_for("opus", RATE_HZ, rate_hz, 1.0)
    assert refused.value.param == "sample_rate"


@pytest.mark.parametrize(("native_hz", "pcm_hz"), [(24_000, 24_000), (22_050, 48_000)])
def test_opus_is_resampled_only_where_it_must(native_hz: int, pcm_hz: int) -> None:
    output = output_for("opus", native_hz, 48_000, 1.0)
    assert (output.pcm_hz, output.sample_rate_hz) == (pcm_hz, 48_000)


@pytest.mark.parametrize("name", FORMATS)
def test_verbatim_is_what_takes_no_time(name: str) -> None:
    assert output_for(name, RATE_HZ, None, 1.0).verbatim == (name in ("wav", "pcm"))
    assert not output_for(name, RATE_HZ, 48_000, 1.0).verbatim
    assert not output_for(name, RATE_HZ, None, 1.1).verbatim


def test_no_clicks_at_the_edges_of_chunks() -> None:
    for rate_hz in (8000, 48_000):
        data = b"".join(piece.data for piece in spoken("pcm", rate_hz, 1.0))
        steps = np.abs(np.diff(np.frombuffer(data, "<i2").astype(int)))
        native = np.abs(np.diff(SAMPLES.astype(int))).max() * RATE_HZ / rate_hz
        assert steps.max() <= 1.2 * native


@pytest.mark.parametrize(
    ("name", "most_ms"),
    [("opus", 60), ("flac", 100), ("mp3", 100), ("aac", 100)],
)
def test_sound_comes_soon_after_the_pcm_that_it_is_made_of(name: str, most_ms: int) -> None:
    """How much later than pcm, which starts with 20 ms, a player that begins with the first thing
    that it can decode comes to the first sound; the encoder's own silence is counted."""
    loud = np.where(np.abs(SAMPLES) < 2000, SAMPLES + 3000, SAMPLES).astype(np.int16)
    stream = output_for(name, RATE_HZ, None, 1.0).open(whole=False)
    step, fed, data = RATE_HZ * 4 // 1000, 0, b""
    while not len(decode(data)[0]):
        data += stream.feed(loud[fed : fed + step].tobytes()).data
        fed += step
    begins_ms = 1000 * fed / RATE_HZ
    made, made_hz = decode(data + stream.feed(loud[fed:].tobytes()).data)
    silence_ms = 1000 * np.flatnonzero(np.abs(made.astype(int)) > 800)[0] / made_hz
    assert begins_ms + silence_ms - 20 <= most_ms
    stream.close()


def test_aac_is_finer_unless_a_rate_is_asked_for() -> None:
    assert decode(b"".join(piece.data for piece in spoken("aac", None, 1.0)))[1] == 48_000
    assert decode(b"".join(piece.data for piece in spoken("aac", 24_000, 1.0)))[1] == 24_000
    assert output_for("aac", 48_000, None, 1.0).sample_rate_hz == 48_000
