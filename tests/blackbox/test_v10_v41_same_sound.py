"""V10, V37, V38 and V41: what a request sounds like depends on the request alone.

The test server is in deterministic mode, so the same chunks are the same bytes. How short texts end
with trained weights, and that each output says its own text: tests/voice.
"""

import random
import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tests.api.server_process import ServerProcess, forced
from tests.audio.sounds import decode, snr_db

pytestmark = pytest.mark.timeout(300)

AT_ONCE = 16
SCHEDULES: tuple[dict[str, object], ...] = (
    {},
    {"initial_codec_chunk_frames": 1},
    {"initial_codec_chunk_frames": 2},
    {"initial_codec_chunk_frames": 5},
    {"initial_codec_chunk_frames": 64},
)


def pcm(server: ServerProcess, **fields: Any) -> bytes:
    response = server.client.post(
        "/v1/audio/speech", json={"response_format": "pcm", **fields}, timeout=120
    )
    assert response.status_code == 200, response.text
    return response.content


def together(
    server: ServerProcess, requests: Sequence[dict[str, Any]], at_once: int
) -> list[bytes]:
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(lambda fields: pcm(server, **fields), requests))


def test_v10_chunks_do_not_change_the_sound(server: ServerProcess) -> None:
    """Twenty texts, cut into chunks in five ways as they come, against the whole."""
    texts = [f"Sentence number {number}, said aloud." for number in range(20)]
    whole = [{**forced(8 + n % 8, seed=n), "input": text} for n, text in enumerate(texts)]
    expected = together(server, [{**fields, "stream": False} for fields in whole], AT_ONCE)
    for schedule in SCHEDULES:
        made = together(server, [{**fields, **schedule} for fields in whole], AT_ONCE)
        for one, other in zip(made, expected, strict=True):
            ours, theirs = np.frombuffer(one, "<i2"), np.frombuffer(other, "<i2")
            assert len(ours) == len(theirs)
            # Chunks of other sizes round otherwise, by a unit here and there.
            assert np.abs(ours.astype(int) - theirs).max() <= 1
            assert np.array_equal(ours, theirs) or snr_db(theirs, ours) >= 60


def test_v37_neighbours_and_history_do_not_change_the_sound(server: ServerProcess) -> None:
    fields = forced(20, seed=7)
    alone = pcm(server, **fields)
    neighbours = [forced(5 + number, seed=100 + number) for number in range(15)]
    assert together(server, [*neighbours[:8], fields, *neighbours[8:]], 16)[8] == alone
    together(server, [forced(3, seed=number) for number in range(100)], AT_ONCE)
    assert pcm(server, **fields) == alone


def test_v38_short_texts_end(server: ServerProcess) -> None:
    """Random weights hardly ever end by themselves, so it is the guard that is seen at work."""
    texts = ("1次", "嗯", "a", "Hi.")
    dice = random.Random(38)
    reasons = set()
    for text in texts:
        seconds = []
        for seed in [dice.randrange(2**31) for _ in range(6)]:
            answer = server.speech(input=text, seed=seed, response_format="wav", stream=False)
            assert answer.status_code == 200, answer.text
            seconds.append(int(answer.headers["x-audio-duration-ms"]) / 1000)
            reasons.add(answer.headers["x-finish-reason"])
        assert max(seconds) <= max(4, 5 * statistics.median(seconds)), (text, seconds)
    assert reasons <= {"stop", "guard"}


def test_v41_sixty_four_at_once_are_themselves(server: ServerProcess) -> None:
    """Texts, voices, lengths and formats of all kinds: each is, to the bit where its format keeps
    the bits, what the same request gives alone."""
    voices = server.client.get("/v1/audio/voices").json()["voices"]
    requests = [
        {
            **forced(4 + number % 7, seed=number),
            "input": f"Text {number} of many.",
            "voice": voices[number % len(voices)],
            "response_format": ("pcm", "wav", "flac", "mp3", "opus", "aac")[number % 6],
            "stream": None if number % 5 else False,
        }
        for number in range(64)
    ]
    many = together(server, requests, 64)
    for fields, made in zip(requests, many, strict=True):
        name = fields["response_format"]
        if name in ("pcm", "wav", "flac"):
            assert _samples(name, made) == pcm(server, **{**fields, "response_format": "pcm"})
        elif name == "opus":  # whose stream has a number that is drawn
            assert np.array_equal(decode(made)[0], decode(pcm(server, **fields))[0])
        else:
            assert made == pcm(server, **fields)
    assert len(set(many)) == len(many)


def _samples(name: str, data: bytes) -> bytes:
    """The PCM in a file of a format that keeps all of it."""
    if name == "flac":
        return decode(data)[0].astype("<i2").tobytes()
    return data[44:] if name == "wav" else data
