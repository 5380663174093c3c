"""What each kind of server is asked, as a scripted stub received it."""

import asyncio

import pytest

from voxserve.bench import workloads
from voxserve.bench.arrivals import orders
from voxserve.bench.records import Job, Record
from voxserve.bench.stub import Stub, even
from voxserve.bench.targets import KINDS, Kind, Target, forced_frames
from voxserve.bench.worker import run
from voxserve.errors import InvalidRequestError

MODEL = "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice"
TEXTS = workloads.load("libritts")
NAMED = {"model": MODEL, "voice": "ryan", "language": "English", "response_format": "pcm"}
STREAMING: dict[Kind, dict[str, object]] = {
    "voxserve": {"seed": 1_000_000},
    "openai": {},
    "vllm-omni": {"stream": True, "stream_format": "audio"},
    "sglang-omni": {"stream": True, "stream_format": "audio"},
    "nari": {"stream": True, "non_streaming_mode": False},
}


def _asked(target: Target) -> tuple[dict[str, object], Record]:
    """The body that the stub got, and the client's record of its answer."""

    async def both() -> tuple[dict[str, object], Record]:
        stub = Stub(even(0.01, 0.01, 0.04, 3))
        server, port = await stub.start()
        sent = orders(TEXTS, target, [0.0], seed=1)
        url = f"http://127.0.0.1:{port}/v1/audio/speech"
        job = Job(url, "http", {}, sent, 0.0, 10.0, 24_000, target.frame_s)
        async with server:
            (record,) = await run(job, lambda _: None)
        return stub.notes[0].body, record

    return asyncio.run(both())


@pytest.mark.parametrize("kind", KINDS)
def test_each_server_is_asked_for_raw_pcm_in_its_own_words(kind: Kind) -> None:
    target = Target(kind, "http://x", model=MODEL, voice="ryan", language="English")
    body, record = _asked(target)
    text = body.pop("input")
    assert text in {row.text for row in TEXTS.rows}
    assert body == NAMED | STREAMING[kind]
    assert record.outcome == "completed"
    assert record.audio_s == pytest.approx(0.12)
    assert record.chunks == 3


def test_further_fields_come_last() -> None:
    params = (("non_streaming_mode", False), ("stream_format", "sse"))
    body, _ = _asked(Target("vllm-omni", "http://x", params=params))
    assert body["non_streaming_mode"] is False
    assert body["stream_format"] == "sse"


def test_forced_lengths_are_asked_of_voxserve_alone() -> None:
    body, record = _asked(Target("voxserve", "http://x", force_length=True))
    frames = forced_frames(len(str(body["input"]).split()), 0.08)
    assert body["extra_params"] == {"ignore_eos": True, "max_frames": frames}
    assert record.outcome == "failed" and "asked for" in record.error
    with pytest.raises(InvalidRequestError, match="how nari is told a length is not known"):
        Target("nari", "http://x", force_length=True)


@pytest.mark.parametrize(
    ("words", "frame_s", "frames"),
    [(1, 0.08, 13), (2, 0.08, 13), (3, 0.08, 16), (19, 0.08, 100), (57, 0.08, 298), (3, 0.04, 32)],
)
def test_forced_length_follows_the_words(words: int, frame_s: float, frames: int) -> None:
    assert forced_frames(words, frame_s) == frames


def test_only_voxserve_is_measured_over_websocket() -> None:
    with pytest.raises(InvalidRequestError, match="WebSocket"):
        Target("vllm-omni", "http://x", transport="websocket")


def test_buffered_work_asks_every_server_for_one_piece() -> None:
    for kind in KINDS:
        assert Target(kind, "http://x", buffered=True).body("Hi.", 1)["stream"] is False
