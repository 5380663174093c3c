"""Texts longer than one request of the model holds, and text in units, over a real server."""

import asyncio
import json
from typing import Any

import pytest

from tests.api.server_process import ServerProcess
from tests.api.ws_client import session

SENTENCE = "The quick brown fox jumps over the lazy dog, as it always did. "
SHORT = {"ignore_eos": True, "max_frames": 10}
FRAME_BYTES = 1920 * 2


def test_http_joins_the_units(server: ServerProcess) -> None:
    long = SENTENCE * 60
    fields: dict[str, Any] = {
        "input": long,
        "seed": 5,
        "response_format": "pcm",
        "extra_params": SHORT,
    }
    whole = server.speech(**fields, stream=False)
    assert whole.status_code == 200
    units = round(len(whole.content) / (10 * FRAME_BYTES))
    assert units > 1 and len(whole.content) == units * 10 * FRAME_BYTES
    assert whole.headers["x-usage-output-tokens"] == str(10 * units)
    assert int(whole.headers["x-usage-input-tokens"]) >= len(long) - units
    assert whole.headers["x-audio-duration-ms"] == str(800 * units)
    assert whole.headers["x-seed"] == "5"
    streamed = server.speech(**fields)
    assert streamed.content == whole.content
    first, second = whole.content[: 10 * FRAME_BYTES], whole.content[10 * FRAME_BYTES :]
    assert first != second[: len(first)]


def test_steps_of_the_whole_answer_are_limited(server: ServerProcess) -> None:
    extra = {"ignore_eos": True}
    limited = server.speech(
        input=SENTENCE * 60,
        response_format="pcm",
        stream=False,
        max_new_tokens=12,
        extra_params=extra,
    )
    assert len(limited.content) == 12 * FRAME_BYTES
    assert limited.headers["x-finish-reason"] == "length"


def test_sse_has_one_end(server: ServerProcess) -> None:
    events = server.speech(
        input=SENTENCE * 60, response_format="pcm", stream_format="sse", extra_params=SHORT
    ).text.strip()
    kinds = [event.split("\n")[0] for event in events.split("\n\n")]
    assert kinds.count("event: speech.audio.done") == 1 and kinds[-1].endswith("done")
    starts = [
        json.loads(event.partition("data: ")[2])["audio_start_ms"]
        for event in events.split("\n\n")[:-1]
    ]
    assert starts == sorted(starts) and starts[-1] > 800


def test_client_that_leaves_frees_every_unit(server: ServerProcess) -> None:
    fields = {"input": SENTENCE * 60, "response_format": "pcm", "seed": 1}
    with server.client.stream("POST", "/v1/audio/speech", json=fields) as response:
        next(response.iter_bytes())
    server.wait_idle()


def test_live_utterance_longer_than_a_request(server: ServerProcess) -> None:
    async def talk() -> None:
        async with session(server.ws_url) as client:
            await client.configure(extra_params=SHORT, seed=5)
            for _ in range(60):
                await client.send("input.text", text=SENTENCE)
            await client.send("input.flush")
            heard = await client.until("session.done")
            assert heard.types == ["audio.start", "audio.done", "session.done"]
            start, done, over = heard.events
            assert (SENTENCE * 60).startswith(start["sentence_text"]) and start["seed"] == 5
            assert done["total_bytes"] == len(heard.audio) > 10 * FRAME_BYTES
            assert over["usage"]["output_tokens"] == len(heard.audio) // FRAME_BYTES
            assert over["total_sentences"] == 1

    asyncio.run(talk())


@pytest.mark.parametrize(
    ("granularity", "texts"),
    [
        ("sentence", ["Dr. Smith paid $3.50 for it, I think.", "Is it so?", "😀 Yes."]),
        ("clause", ["Dr. Smith paid $3.50 for it,", "I think.", "Is it so?", "😀 Yes."]),
    ],
)
def test_units_are_told_to_the_client(
    server: ServerProcess, granularity: str, texts: list[str]
) -> None:
    async def talk() -> None:
        async with session(server.ws_url) as client:
            await client.configure(
                split_granularity=granularity, audio_transport="json", extra_params=SHORT
            )
            text = "Dr. Smith paid $3.50 for it, I think. Is it so? 😀 Yes. …"
            for character in text.encode("utf-16-le").decode("utf-16-le"):
                await client.send("input.text", text=character)
            await client.send("input.flush")
            heard = await client.until("session.done")
            starts = [event for event in heard.events if event["type"] == "audio.start"]
            ends = [event for event in heard.events if event["type"] == "audio.done"]
            assert [start["sentence_text"] for start in starts][: len(texts) - 1] == texts[:-1]
            assert starts[-1]["sentence_text"].startswith(texts[-1])
            count = len(texts)
            assert [start["sentence_index"] for start in starts] == list(range(count))
            assert [end["sentence_index"] for end in ends] == list(range(count))
            assert all(end["total_bytes"] == 10 * FRAME_BYTES for end in ends)
            assert heard.last["total_sentences"] == count
            assert heard.last["audio_ms"] == 800 * count
            assert heard.last["usage"]["output_tokens"] == 10 * count
            chunks = [event for event in heard.events if event["type"] == "audio.chunk"]
            assert [chunk["sentence_index"] for chunk in chunks] == sorted(
                chunk["sentence_index"] for chunk in chunks
            )
            times = [chunk["audio_start_ms"] for chunk in chunks]
            assert times == sorted(times) and times[-1] >= 800 * (count - 1)

    asyncio.run(talk())


def test_first_sentence_is_spoken_while_the_rest_is_written(server: ServerProcess) -> None:
    async def talk() -> None:
        async with session(server.ws_url) as client:
            await client.configure(split_granularity="sentence", extra_params=SHORT)
            await client.send("input.text", text="It begins here. And it")
            heard = await client.until("audio.done")
            assert len(heard.audio) == 10 * FRAME_BYTES
            await client.send("input.cancel")
            cancelled = (await client.until("audio.cancelled")).last
            assert cancelled["generated_ms"] == 800
            again = await client.speak("And again.")
            assert again.last["utterance_index"] == 1

    asyncio.run(talk())
    server.wait_idle()


def test_each_sentence_is_a_file_of_its_own(server: ServerProcess) -> None:
    async def talk() -> None:
        async with session(server.ws_url) as client:
            await client.configure(
                split_granularity="sentence",
                response_format="wav",
                stream_audio=False,
                extra_params=SHORT,
            )
            heard = await client.speak("It begins here. And it ends there.")
            assert [frame[:4] for frame in heard.frames] == [b"RIFF", b"RIFF"]
            assert {len(frame) for frame in heard.frames} == {44 + 10 * FRAME_BYTES}

    asyncio.run(talk())


def test_a_pause_has_a_sentence_spoken_and_ends_nothing(server: ServerProcess) -> None:
    """Nothing tells yet that the sentence is over, but nobody should wait for the next one."""

    async def talk() -> None:
        async with session(server.ws_url) as client:
            await client.configure(
                split_granularity="sentence", max_buffer_delay_ms=0, extra_params=SHORT
            )
            await client.send("input.text", text="It begins here.")
            first = await client.until("audio.done")
            assert first.events[0]["sentence_text"] == "It begins here."
            await client.send("input.text", text=" And it goes on.")
            second = await client.until("audio.done")
            assert second.types == ["audio.start", "audio.done"]
            assert second.events[0]["sentence_index"] == 1
            await client.send("input.flush")
            over = (await client.until("session.done")).last
            assert over["total_sentences"] == 2 and over["utterance_index"] == 0

    asyncio.run(talk())
