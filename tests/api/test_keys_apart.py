"""What the holder of one API key sees and takes of a server that others use as well."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from tests.api.server_process import ServerProcess, forced
from tests.api.ws_client import Client, session

MINE, THEIRS = "my-key", "their-key"
MOST = 3


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    settings = {"api": {"api_keys": [MINE, THEIRS], "max_sessions": MOST}}
    with ServerProcess(tmp_path_factory.mktemp("keys"), settings, key=MINE) as running:
        running.wait_ready()
        yield running


def _speak(server: ServerProcess, key: str, request_id: str, frames: int) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}", "x-request-id": request_id}
    return server.client.post("/v1/audio/speech", json=forced(frames), headers=headers)


def _outcome(server: ServerProcess, key: str, request_id: str) -> httpx.Response:
    headers = {"xi-api-key": key, "authorization": ""}
    return server.client.get(f"/v1/audio/speech/{request_id}", headers=headers)


def test_an_outcome_is_told_to_its_own_key(server: ServerProcess) -> None:
    assert _speak(server, MINE, "mine", 13).status_code == 200
    assert _outcome(server, MINE, "mine").json()["outcome"] == "completed"
    other = _outcome(server, THEIRS, "mine")
    assert (other.status_code, other.json()["error"]["code"]) == (404, "request_not_found")


def test_the_same_id_under_another_key_is_another_request(server: ServerProcess) -> None:
    assert _speak(server, MINE, "same", 13).status_code == 200
    assert _speak(server, THEIRS, "same", 25).status_code == 200
    assert _outcome(server, MINE, "same").json()["usage"]["output_tokens"] == 13
    assert _outcome(server, THEIRS, "same").json()["usage"]["output_tokens"] == 25


def test_utterances_belong_to_the_key_of_the_handshake(server: ServerProcess) -> None:
    async def talk() -> str:
        async with session(server.ws_url, additional_headers={"xi-api-key": THEIRS}) as client:
            await client.configure(extra_params=forced(13)["extra_params"])
            heard = await client.speak("Hello there.")
            return str(heard.events[0]["request_id"])

    request_id = asyncio.run(talk())
    assert _outcome(server, THEIRS, request_id).json()["outcome"] == "completed"
    assert _outcome(server, MINE, request_id).status_code == 404


def test_sessions_of_one_key_are_limited(server: ServerProcess) -> None:
    def connection(key: str) -> AbstractAsyncContextManager[Client]:
        return session(server.ws_url, additional_headers={"xi-api-key": key})

    async def talk() -> None:
        async with AsyncExitStack() as held:
            mine = [await held.enter_async_context(connection(MINE)) for _ in range(MOST)]
            with pytest.raises(InvalidStatus) as refused:
                async with connection(MINE):
                    pass
            answer = refused.value.response
            assert answer.status_code == 429
            assert int(answer.headers["retry-after"]) >= 1
            assert int(answer.headers["retry-after-ms"]) >= 1
            error = json.loads(answer.body or b"")["error"]
            assert (error["type"], error["code"]) == ("rate_limit_error", "too_many_connections")
            assert "api.max_sessions" in error["message"]
            # Others have sessions of their own, and those that are open go on.
            async with connection(THEIRS) as theirs:
                await theirs.configure()
            await mine[0].configure()
            # A session that has ended makes room.
            await mine[1].connection.close()
            async with asyncio.timeout(10):
                while True:
                    try:
                        async with connection(MINE) as another:
                            await another.configure()
                            return
                    except InvalidStatus:
                        await asyncio.sleep(0.01)

    asyncio.run(talk())
