"""What the holder of one API key sees and takes of a server that others use as well."""

import asyncio
from collections.abc import Iterator

import httpx
import pytest

from tests.api.server_process import ServerProcess, forced
from tests.api.ws_client import session

MINE, THEIRS = "my-key", "their-key"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    settings = {"api": {"api_keys": [MINE, THEIRS]}}
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
