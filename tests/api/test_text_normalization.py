"""`text_normalization`, and text that a model has no sound for."""

import asyncio
from typing import Any

import pytest

from tests.api.server_process import ServerProcess
from tests.api.ws_client import session
from tests.models.mini_rows import host as mini
from voxserve.api.schemas import SpeechFields
from voxserve.api.speech_request import SpeechPlan, resolve
from voxserve.config import Config
from voxserve.errors import InvalidRequestError

WRITTEN, SAID = "It costs $5 at 7:05.", "It costs five dollars at seven oh five."
EXTRA = {"ignore_eos": True, "max_frames": 30}


def say(server: ServerProcess, text: str, **fields: Any) -> bytes:
    response = server.speech(
        input=text, seed=3, extra_params=EXTRA, response_format="pcm", **fields
    )
    assert response.status_code == 200, response.text
    return response.content


def test_on_speaks_what_the_rules_say(server: ServerProcess) -> None:
    said = say(server, SAID)
    assert say(server, WRITTEN, text_normalization="on") == said
    assert say(server, WRITTEN, text_normalization="on", language="en") == say(
        server, SAID, language="en"
    )
    written = say(server, WRITTEN)
    assert written == say(server, WRITTEN, text_normalization="off") != said
    assert written == say(server, WRITTEN, text_normalization="auto")


def test_on_over_a_websocket_takes_the_whole_text(server: ServerProcess) -> None:
    async def talk() -> tuple[dict[str, Any], bytes]:
        async with session(server.ws_url) as client:
            configured = await client.configure(seed=3, extra_params=EXTRA, text_normalization="on")
            for piece in ("It costs $", "5 at 7:", "05."):
                await client.send("input.text", text=piece)
            await client.send("input.flush")
            return configured, (await client.until("session.done", "error")).audio

    configured, heard = asyncio.run(talk())
    assert configured["text_streaming"] is False
    assert heard == say(server, SAID)


def test_there_are_rules_for_english_alone(server: ServerProcess) -> None:
    fields = {"input": WRITTEN, "language": "zh", "text_normalization": "on"}
    error = server.speech(**fields).json()["error"]
    assert (error["code"], error["param"]) == ("unsupported_parameter", "text_normalization")


def plan(**fields: Any) -> SpeechPlan:
    return resolve(SpeechFields(**fields), mini(), Config(), format_="pcm", silence=False)


def test_a_model_that_reads_words_alone_is_never_told_to_stop() -> None:
    with pytest.raises(InvalidRequestError) as refused:
        plan(text_normalization="off")
    assert refused.value.param == "text_normalization"
    for choice in ("auto", "on", None):
        chosen = plan(text_normalization=choice).with_text(WRITTEN, 100)
        assert chosen.request.text == WRITTEN


def test_a_script_without_a_sound_is_unspeakable() -> None:
    with pytest.raises(InvalidRequestError) as refused:
        mini().prompt(plan().with_text("你好", 100).request)
    assert refused.value.code == "input_unspeakable"
