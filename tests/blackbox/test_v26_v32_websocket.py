"""V26–V32: text in, audio out over a WebSocket."""

import asyncio
import json
import struct
import time
from contextlib import suppress
from typing import Any

import psutil
import pytest
from websockets.exceptions import ConnectionClosed

from tests.api.server_process import ServerProcess, forced
from tests.api.ws_client import session

LONG = {"ignore_eos": True, "max_frames": 400}


def test_v26_two_utterances_then_close(server: ServerProcess) -> None:
    async def talk() -> None:
        async with session(server.ws_url) as client:
            configured = await client.configure(voice="ryan", response_format="pcm")
            assert configured["sample_rate"] == 24_000
            assert configured["text_streaming"] is True
            for index, text in enumerate(("Hello there.", "And again.")):
                await client.send("input.text", text=text)
                await client.send("input.done")
                heard = await client.until("session.done")
                assert heard.types == ["audio.start", "audio.done", "session.done"]
                assert [event["utterance_index"] for event in heard.events] == [index] * 3
                start, done, over = heard.events
                assert (start["sentence_index"], start["format"]) == (0, "pcm")
                assert (start["sample_rate"], start["channels"]) == (24_000, 1)
                assert done["total_bytes"] == len(heard.audio) > 0
                assert done["audio_ms"] == round(len(heard.audio) / 48)
                assert (done["finish_reason"], done["error"]) == ("stop", False)
                assert over["total_sentences"] == 1
                assert over["usage"]["output_tokens"] > 0
            await client.send("session.close")
            code, rest = await client.closed()
            assert code == 1000 and not rest.events and not rest.frames

    asyncio.run(talk())


@pytest.mark.parametrize("text", ["你好，世界！", "Hi 👩‍🚀, ok?", "Dr. Smith paid $3.50."])
def test_v27_text_in_single_units_equals_whole_text(server: ServerProcess, text: str) -> None:
    """The tiny model speaks noise, but equal noise under one seed means equal tokens."""
    data = text.encode("utf-16-le", "surrogatepass")
    units = [
        data[at : at + 2].decode("utf-16-le", "surrogatepass") for at in range(0, len(data), 2)
    ]

    async def talk() -> tuple[bytes, bytes]:
        async with session(server.ws_url) as client:
            await client.configure(seed=3, extra_params={"ignore_eos": True, "max_frames": 30})
            whole = await client.speak(text)
            for unit in units:
                await client.send("input.text", text=unit)
            await client.send("input.flush")
            split = await client.until("session.done")
            assert whole.last["usage"] == split.last["usage"]
            return whole.audio, split.audio

    whole, split = asyncio.run(talk())
    posted = server.speech(**{**forced(30, seed=3, response_format="pcm"), "input": text})
    assert len(whole) == 30 * 3840
    assert whole == split == posted.content


def test_v28_barge_in(server: ServerProcess) -> None:
    async def talk() -> None:
        async with session(server.ws_url) as client:
            await client.configure(extra_params=LONG, audio_transport="tagged")
            idle_s = []
            for _ in range(3):
                begin = time.monotonic()
                await client.send("input.text", text="Warm.")
                await client.frame()
                idle_s.append(time.monotonic() - begin)
                await client.send("input.cancel")
                await client.until("audio.cancelled")
            await client.send("input.text", text="A story that nobody wants to hear to its end.")
            heard_s = 0.0
            while heard_s < 0.3:
                heard_s += (len(await client.frame()) - 16) / 48_000
            begin = time.monotonic()
            await client.send("input.cancel")
            await client.send("input.text", text="New.")
            heard = await client.until("audio.cancelled")
            assert heard.times[-1] - begin <= 0.1
            assert heard.last["reason"] == "client_cancel"
            assert heard.last["utterance_index"] == 3
            assert heard.last["generated_ms"] >= heard.last["sent_ms"] >= 300
            frame = await client.frame()
            assert time.monotonic() - begin <= 1.2 * max(idle_s) + 0.1
            for _ in range(12):
                utterance = struct.unpack_from("<BBHI", frame)[3]
                assert utterance == 4, "a byte of the old utterance"
                frame = await client.frame()

    asyncio.run(talk())
    server.wait_idle()


def test_v29_reset_in_mid_utterance_and_during_config(server: ServerProcess) -> None:
    async def cut(at: str) -> None:
        async with session(server.ws_url) as client:
            await client.send("session.config", extra_params=LONG)
            if at == "utterance":
                await client.send("input.text", text="Some text.")
                await client.frame()
            # SO_LINGER 0: the kernel sends a reset instead of an orderly end.
            raw = client.connection.transport.get_extra_info("socket")
            raw.setsockopt(1, 13, struct.pack("ii", 1, 0))
            client.connection.transport.abort()

    aborted = server.metric("voxserve_aborts_total", reason="client_closed")
    asyncio.run(cut("config"))
    asyncio.run(cut("utterance"))
    server.wait_idle()
    assert server.metric("voxserve_aborts_total", reason="client_closed") == aborted + 1


@pytest.mark.parametrize(
    "bad",
    [
        "{",
        "[1]",
        '{"type": "input.sing"}',
        '{"type": "input.text", "text": 5}',
        '{"type": "input.text", "text": "a\\u0000"}',
        '{"type": "playback.report", "played_ms": -1}',
        '{"text": "no type"}',
        '{"type": "session.config", "voice": "nobody"}',
    ],
)
def test_v30_bad_message_is_told_and_forgiven(server: ServerProcess, bad: str) -> None:
    async def talk() -> None:
        async with session(server.ws_url) as client:
            await client.configure()
            await client.connection.send(bad)
            error = (await client.until("error")).last
            assert error["error"]["type"] == "invalid_request_error"
            assert error["fatal"] is False
            await client.send("input.cancel")
            heard = await client.speak("Still here.")
            assert heard.types[-1] == "session.done" and heard.audio

    asyncio.run(talk())


def test_v30_ten_errors_end_the_session(server: ServerProcess) -> None:
    async def talk() -> None:
        async with session(server.ws_url) as client:
            for number in range(10):
                await client.send("nonsense", event_id=f"event-{number}")
            code, heard = await client.closed()
            assert code == 1008
            assert [event["event_id"] for event in heard.events] == [
                f"event-{number}" for number in range(10)
            ]
            assert [event["fatal"] for event in heard.events] == [False] * 9 + [True]

    asyncio.run(talk())


def test_v30_binary_message(server: ServerProcess) -> None:
    async def talk() -> None:
        async with session(server.ws_url) as client:
            await client.configure()
            await client.connection.send(b"\x00\x01")
            code, heard = await client.closed()
            assert (code, heard.last["error"]["code"]) == (1003, "binary_message")

    asyncio.run(talk())


def test_v30_text_that_is_not_utf8(server: ServerProcess) -> None:
    async def talk() -> None:
        async with session(server.ws_url) as client:
            await client.configure()
            await client.connection.send(b'{"type": "\xff"}', text=True)
            code, _ = await client.closed()
            assert code == 1007

    asyncio.run(talk())


@pytest.mark.parametrize("size", [20 * 2**20, 200 * 2**10])
def test_v31_too_big_a_message(server: ServerProcess, size: int) -> None:
    process = psutil.Process(server.process.pid)

    async def talk() -> int:
        async with session(server.ws_url) as client:
            await client.configure()
            before = process.memory_info().rss
            message = json.dumps({"type": "input.text", "text": "a" * size})
            with suppress(ConnectionClosed):  # it may be refused while it is still being sent
                await client.connection.send(message)
            code, _ = await client.closed()
            assert process.memory_info().rss - before < 32 * 2**20
            return code

    assert asyncio.run(talk()) == 1009


def test_v32_silence_before_and_after_config(server: ServerProcess) -> None:
    limit_s = 3.0  # ws_config_timeout_s of the test server

    async def nothing() -> None:
        async with session(server.ws_url) as client:
            begin = time.monotonic()
            code, heard = await client.closed()
            assert (code, heard.last["error"]["code"]) == (1008, "config_timeout")
            assert limit_s - 0.1 <= time.monotonic() - begin < limit_s + 2

    async def config_only() -> None:
        async with session(server.ws_url) as client:
            await client.configure(idle_timeout_s=1)
            begin = time.monotonic()
            await client.send("ping")
            assert (await client.until("pong")).last["server_ms"] > 0
            code, heard = await client.closed()
            assert (code, heard.last["error"]["code"]) == (1008, "idle_timeout")
            assert 0.9 <= time.monotonic() - begin < 3

    async def both() -> None:
        await asyncio.gather(nothing(), config_only())

    asyncio.run(both())


def test_contexts_do_not_mix(server: ServerProcess) -> None:
    """Tagged frames of three contexts, spoken at once, each as if it were alone."""
    names = ("a", "b", "c")
    fields: dict[str, Any] = {"seed": 9, "extra_params": {"ignore_eos": True, "max_frames": 25}}

    async def talk() -> None:
        async with session(server.ws_url) as client:
            await client.configure(audio_transport="tagged", **fields)
            alone = {}
            for name in names:
                heard = await client.speak(f"Text of {name}.", context_id=name)
                alone[name] = b"".join(frame[16:] for frame in heard.frames)
            for name in names:
                await client.send("input.text", text=f"Text of {name}.", context_id=name)
                await client.send("input.flush", context_id=name)
            number_of, mixed = {}, dict.fromkeys(names, b"")
            flags = dict.fromkeys(names, 0)
            for _ in names:
                heard = await client.until("session.done")
                for event in heard.events:
                    if event["type"] == "audio.start":
                        number_of[event["context_number"]] = event["context_id"]
                for frame in heard.frames:
                    version, last, number, _, first = struct.unpack_from("<BBHIQ", frame)
                    name = number_of[number]
                    assert version == 1 and first == len(mixed[name]) // 2
                    mixed[name] += frame[16:]
                    flags[name] += last
            assert mixed == alone
            assert flags == dict.fromkeys(names, 1)

    asyncio.run(talk())


def test_binary_transport_takes_one_context(server: ServerProcess) -> None:
    async def talk() -> None:
        async with session(server.ws_url) as client:
            await client.configure(extra_params=LONG)
            await client.send("input.text", text="One.", context_id="one")
            await client.send("input.text", text="Two.", context_id="two")
            error = (await client.until("error")).last
            assert error["error"]["code"] == "too_many_contexts"
            await client.send("input.cancel")
            await client.until("audio.cancelled")
            await client.send("input.text", text="Two.", context_id="two")
            await client.frame()

    asyncio.run(talk())


def test_unflushed_text_is_flushed_with_a_warning(server: ServerProcess) -> None:
    async def talk() -> None:
        async with session(server.ws_url) as client:
            await client.configure(max_buffer_delay_ms=100)
            await client.send("input.text", text="This is a sentence.")
            heard = await client.until("session.done")
            assert {
                "type": "warning",
                "code": "flush_auto",
                "context_id": "default",
            } in heard.events
            assert heard.audio

    asyncio.run(talk())


def test_json_transport_and_whole_units(server: ServerProcess) -> None:
    async def talk() -> None:
        async with session(server.ws_url) as client:
            await client.configure(
                audio_transport="json", response_format="wav", stream_audio=False, colour="red"
            )
            warning = (await client.until("warning")).last
            assert (warning["code"], warning["fields"]) == ("ignored_fields", ["colour"])
            heard = await client.speak("Hello there.")
            assert heard.types == ["audio.start", "audio.chunk", "audio.done", "session.done"]
            assert not heard.frames

    asyncio.run(talk())


def test_unspeakable_unit_is_silent(server: ServerProcess) -> None:
    async def talk() -> None:
        async with session(server.ws_url) as client:
            await client.configure()
            heard = await client.speak("😀")
            assert heard.types == ["audio.start", "audio.done", "session.done"]
            assert heard.events[1]["total_bytes"] == 0 and not heard.frames
            await client.send("input.flush")
            empty = await client.until("session.done")
            assert (empty.types, empty.last["total_sentences"]) == (["session.done"], 0)

    asyncio.run(talk())


def test_close_speaks_what_was_flushed(server: ServerProcess) -> None:
    async def talk() -> None:
        async with session(server.ws_url) as client:
            await client.configure()
            await client.send("input.text", text="Spoken.")
            await client.send("input.flush")
            await client.send("input.text", text="Dropped.")
            await client.send("session.close")
            code, heard = await client.closed()
            assert code == 1000
            assert "session.done" in heard.types and heard.audio
            assert ("warning", "text_dropped") in [
                (event["type"], event.get("code")) for event in heard.events
            ]

    asyncio.run(talk())
    assert server.speech(**forced(13)).status_code == 200
