"""`WS /v1/audio/speech/stream` where no black-box case looks."""

import asyncio
import json
from contextlib import suppress

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.api.server_process import ServerProcess, forced, poll
from tests.api.ws_client import session


def test_page_of_another_origin_is_refused(server: ServerProcess) -> None:
    async def connect_from(origin: str) -> None:
        async with session(server.ws_url, origin=origin) as client:
            await client.configure()

    asyncio.run(connect_from(server.url))
    with pytest.raises(InvalidStatus) as refused:
        asyncio.run(connect_from("https://elsewhere.example"))
    assert refused.value.response.status_code == 403


def test_a_path_that_is_none_is_said_to_be_none(server: ServerProcess) -> None:
    async def connect() -> None:
        async with session(server.ws_url + "/nothing"):
            pass

    with pytest.raises(InvalidStatus) as refused:
        asyncio.run(connect())
    assert refused.value.response.status_code == 404
    body = json.loads(refused.value.response.body or b"")
    assert body["error"]["code"] == "route_not_found"


def test_text_before_the_config_is_an_error(server: ServerProcess) -> None:
    async def talk() -> None:
        async with session(server.ws_url, subprotocols=["voxserve.speech.v1"]) as client:
            assert client.connection.subprotocol == "voxserve.speech.v1"
            await client.send("input.text", text="Hi.", event_id="e1")
            error = (await client.until("error")).last
            assert error["error"]["code"] == "session_not_configured"
            assert error["event_id"] == "e1"

    asyncio.run(talk())


def test_config_between_utterances_only(server: ServerProcess) -> None:
    async def talk() -> None:
        async with session(server.ws_url) as client:
            await client.configure(seed=1)
            first = await client.speak("Hello.")
            await client.configure(seed=2, voice="vivian")
            await client.send("input.text", text="Hello.")
            await client.send("session.config", seed=3)
            error = (await client.until("error")).last
            assert error["error"]["code"] == "session_busy"
            await client.send("input.flush")
            second = await client.until("session.done")
            assert first.audio != second.audio
            assert second.events[-2]["utterance_index"] == 1

    asyncio.run(talk())


def test_sglang_done_ends_the_session(server: ServerProcess) -> None:
    async def talk() -> None:
        async with session(server.ws_url) as client:
            await client.configure(compat="sglang")
            await client.send("input.text", text="Hello.")
            await client.send("input.done")
            code, heard = await client.closed()
            assert code == 1000 and heard.types[-1] == "session.done"

    asyncio.run(talk())


def test_too_long_text_is_told_and_not_taken(server: ServerProcess) -> None:
    async def talk() -> None:
        async with session(server.ws_url) as client:
            await client.configure()
            await client.send("input.text", text="Hello.")
            await client.send("input.text", text="a" * 20_000)
            await client.send("input.flush")
            heard = await client.until("session.done")
            (error,) = (event for event in heard.events if event["type"] == "error")
            assert error["error"]["code"] == "input_too_long" and error["fatal"] is False
            assert heard.last["usage"]["input_tokens"] < 20

    asyncio.run(talk())


def test_cancel_before_anything_is_made(server: ServerProcess) -> None:
    async def talk() -> None:
        async with session(server.ws_url) as client:
            await client.configure()
            await client.send("input.cancel")  # nothing to cancel is no error
            for _ in range(20):
                await client.send("input.text", text="Hello there.")
                await client.send("input.flush")
                await client.send("input.text", text="And more.")
                await client.send("input.cancel", played_ms=0)
                indices = []
                for _ in range(2):
                    heard = await client.until("audio.cancelled")
                    assert not heard.frames
                    indices.append(heard.last["utterance_index"])
                assert indices[1] == indices[0] + 1
            heard = await client.speak("Hello.")
            assert heard.types == ["audio.start", "audio.done", "session.done"]

    asyncio.run(talk())
    server.wait_idle()


def test_cancel_after_all_is_made_but_not_sent(server: ServerProcess) -> None:
    async def talk() -> None:
        async with session(server.ws_url) as client:
            extra = {"ignore_eos": True, "max_frames": 50}
            await client.configure(extra_params=extra, stream_audio=False)
            await client.send("input.text", text="Hello.")
            await client.send("input.flush")
            heard = await client.until("audio.start")
            await client.send("input.cancel")
            heard = await client.until("audio.cancelled", "session.done")
            if heard.last["type"] == "session.done":  # it was sent before the cancel came
                assert len(heard.audio) == 50 * 3840

    asyncio.run(talk())
    server.wait_idle()


def test_utterances_of_a_context_follow_each_other(server: ServerProcess) -> None:
    async def talk() -> None:
        async with session(server.ws_url) as client:
            await client.configure(audio_transport="json")
            for text in ("One.", "Two.", "Three."):
                await client.send("input.text", text=text, context_id="a")
                await client.send("input.flush", context_id="a")
            order = []
            for _ in range(3):
                heard = await client.until("session.done")
                order += [event["utterance_index"] for event in heard.events]
            assert order == sorted(order) and set(order) == {0, 1, 2}

    asyncio.run(talk())


def test_eight_contexts_and_no_more(server: ServerProcess) -> None:
    async def talk() -> None:
        async with session(server.ws_url) as client:
            await client.configure(
                audio_transport="tagged", extra_params={"ignore_eos": True, "max_frames": 200}
            )
            for number in range(9):
                await client.send("input.text", text="Words.", context_id=f"c{number}")
            error = (await client.until("error")).last
            assert error["error"]["code"] == "too_many_contexts"
            await client.send("input.cancel")
            for _ in range(8):
                await client.until("audio.cancelled")

    asyncio.run(talk())
    server.wait_idle()


def test_utterances_that_wait_are_bounded(server: ServerProcess) -> None:
    async def talk() -> None:
        async with session(server.ws_url) as client:
            await client.configure(extra_params={"ignore_eos": True, "max_frames": 200})
            for _ in range(65):
                await client.send("input.text", text="a")
                await client.send("input.flush")
            heard = await client.until("error")
            assert heard.last["error"]["code"] == "too_many_utterances"
            await client.send("input.cancel")
            for _ in range(64):
                await client.until("audio.cancelled")

    asyncio.run(talk())
    server.wait_idle()


def test_questions_without_reading_the_answers_are_bounded(server: ServerProcess) -> None:
    before = server.metric("voxserve_slow_client_closed_total")

    async def talk() -> None:
        async with session(server.ws_url) as client:
            client.connection.transport.pause_reading()
            unknown = {f"{number:064}": 0 for number in range(20)}
            with suppress(ConnectionClosed, ConnectionError):
                for _ in range(20_000):  # each is answered with more than a kilobyte
                    await client.send("session.config", **unknown)
            client.connection.transport.abort()

    asyncio.run(talk())
    poll(
        "the client is cut",
        lambda: server.metric("voxserve_slow_client_closed_total") == before + 1,
        10,
    )
    assert server.metric("voxserve_send_buffer_bytes") == 0


def test_keep_alives_begin_no_utterance(server: ServerProcess) -> None:
    async def talk() -> None:
        async with session(server.ws_url) as client:
            await client.configure(idle_timeout_s=1)
            await client.send("input.text", text=" ")
            await client.send("input.text", text="")
            await client.send("playback.report", played_ms=10)
            code, heard = await client.closed()
            assert (code, heard.types) == (1008, ["error"])

    asyncio.run(talk())


def test_utterance_has_an_outcome(server: ServerProcess) -> None:
    async def talk() -> str:
        async with session(server.ws_url) as client:
            await client.configure()
            heard = await client.speak("Hello.")
            return str(heard.events[0]["request_id"])

    request_id = asyncio.run(talk())
    outcome = server.client.get(f"/v1/audio/speech/{request_id}").json()
    assert outcome["outcome"] == "completed" and outcome["usage"]["input_tokens"] > 0
    assert server.wait_line("utterance", 5, request_id=request_id)["outcome"] == "completed"
    assert server.speech(**forced(13)).status_code == 200
