"""Voices of clips from end to end, on a server of their own: what comes out, and what it cost."""

import asyncio
import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.server_process import ServerProcess, forced, poll
from tests.api.ws_client import session
from tests.audio.recordings import noise, sounding, tone

CLIP = noise(2.0, seed=1)
OTHER = sounding(tone(2.0, 24_000), 24_000)
FORM = {"input": "Some words.", "seed": "7", "response_format": "pcm", "stream": "false"}


def data_uri(recording: bytes) -> str:
    return "data:audio/wav;base64," + base64.b64encode(recording).decode()


def say(server: ServerProcess, **fields: Any) -> bytes:
    response = server.speech(**forced(13), seed=7, response_format="pcm", **fields)
    assert response.status_code == 200, response.text
    return response.content


def upload(server: ServerProcess, name: str, recording: bytes = CLIP, **about: Any) -> Any:
    return server.client.post(
        "/v1/audio/voices",
        data={"name": name, **about},
        files={"audio": ("../me.wav", recording, "audio/wav")},
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cloning")


@pytest.fixture(scope="module")
def cloning(folder: Path) -> Iterator[ServerProcess]:
    settings = {
        "engine": {"slots": 16, "deterministic": True, "trace": str(folder / "trace.json")},
        "api": {"voice_alias": {"Narrator": "vivian"}, "media_dir": str(folder / "media")},
    }
    with ServerProcess(folder, settings) as running:
        running.wait_ready()
        yield running


def launches(server: ServerProcess, stage: str) -> int:
    """Rows that ran so far, from the trace, which is written with every report of the engine."""
    events = json.loads((server.folder / "trace.json").read_text())["traceEvents"]
    return sum(event["args"]["rows"] for event in events if event["name"] == stage)


def test_clips_decide_the_voice_and_equal_ones_are_encoded_once(cloning: ServerProcess) -> None:
    plain = say(cloning)
    one = say(cloning, ref_audio=data_uri(CLIP))
    assert say(cloning, ref_audio=base64.b64encode(CLIP).decode()) == one
    assert say(cloning, references=[{"audio_path": data_uri(CLIP), "text": "Words."}]) == one
    assert say(cloning, ref_audio=data_uri(CLIP), voice="vivian") == one
    assert upload(cloning, "Once").status_code == 201
    assert say(cloning, voice="once") == one
    two = say(cloning, ref_audio=data_uri(OTHER))
    assert len({plain, one, two}) == 3
    poll("the trace holds the requests", lambda: launches(cloning, "prefill") >= 7, 10)
    assert launches(cloning, "encode") == 2


def test_uploaded_as_a_file_of_the_form(cloning: ServerProcess) -> None:
    form = {**FORM, "ref_text": "Words."}
    heard = [
        cloning.client.post("/v1/audio/speech", data=form, files={"ref_audio": ("x", recording)})
        for recording in (CLIP, CLIP, OTHER)
    ]
    assert [answer.status_code for answer in heard] == [200] * 3
    assert heard[0].content == heard[1].content != heard[2].content
    assert "x-voice" not in heard[0].headers


def test_two_files_in_one_form_are_refused(cloning: ServerProcess) -> None:
    files = [("ref_audio", ("a", CLIP)), ("more", ("b", CLIP))]
    answer = cloning.client.post("/v1/audio/speech", data=FORM, files=files)
    assert answer.status_code == 400


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"ref_text": "Words."}, "ref_text"),
        ({"x_vector_only_mode": True}, "x_vector_only_mode"),
        ({"references": [{"text": "Words."}]}, "references"),
        ({"references": [{"audio_path": "x", "ref_audio": "y"}]}, "references"),
        ({"references": [{"audio_path": "x"}, {"audio_path": "y"}]}, "references"),
        ({"references": [{"audio_path": "x", "path": "y"}]}, "references.0.path"),
        ({"references": [{"audio_path": "x"}], "ref_audio": "y"}, "references"),
        ({"ref_audio": 5}, "ref_audio"),
        ({"ref_audio": "x", "ref_text": "a" * 2001}, "ref_text"),
        ({"ref_audio": data_uri(CLIP), "task_type": "CustomVoice"}, "ref_audio"),
        ({"task_type": "Base"}, "ref_audio"),
    ],
)
def test_fields_that_contradict_each_other(
    cloning: ServerProcess, fields: dict[str, Any], param: str
) -> None:
    answer = cloning.speech(**forced(13), **fields)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_files_of_the_media_folder(cloning: ServerProcess, folder: Path) -> None:
    (folder / "media").mkdir()
    (folder / "media" / "clip.wav").write_bytes(CLIP)
    (folder / "clip.wav").write_bytes(CLIP)
    inside = f"file://{folder}/media/clip.wav"
    assert say(cloning, ref_audio=inside) == say(cloning, ref_audio=data_uri(CLIP))
    answer = cloning.speech(**forced(13), ref_audio=f"file://{folder}/media/../clip.wav")
    assert answer.json()["error"]["code"] == "url_not_allowed"


def test_a_voice_from_upload_to_deletion(cloning: ServerProcess) -> None:
    about = {"ref_text": "Hello.", "description": "mine", "consent": "signed in May"}
    created = upload(cloning, "Anna", CLIP, **about)
    assert created.status_code == 201
    voice = created.json()
    assert {name: voice[name] for name in about} == about
    assert (voice["name"], voice["uploaded"], voice["default"]) == ("Anna", True, False)
    listed = cloning.client.get("/v1/audio/voices").json()
    assert "Anna" in listed["voices"] and voice in listed["data"]
    served = cloning.client.get("/v1/models").json()["data"][0]["audio"]
    assert "Anna" in served["voices"] and served["cloning"] is True
    assert cloning.client.get("/v1/audio/voices/anna").json() == voice
    assert upload(cloning, "anna").json()["error"]["code"] == "voice_exists"
    answer = cloning.speech(**forced(13), voice="ANNA", stream=False)
    assert answer.headers["x-voice"] == "Anna"
    assert cloning.client.delete("/v1/audio/voices/anna").json()["deleted"] is True
    assert cloning.client.get("/v1/audio/voices/anna").status_code == 404
    assert cloning.client.delete("/v1/audio/voices/anna").status_code == 404
    gone = cloning.speech(**forced(13), voice="Anna")
    assert gone.json()["error"]["code"] == "voice_not_found"


@pytest.mark.parametrize("name", ["ryan", "VIVIAN", "alloy", "narrator"])
def test_built_in_names_stay_as_they_are(cloning: ServerProcess, name: str) -> None:
    refused = upload(cloning, name)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "voice_exists")
    kept = cloning.client.delete(f"/v1/audio/voices/{name}")
    assert (kept.status_code, kept.json()["error"]["code"]) == (403, "voice_built_in")


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"name": "x", "audio": data_uri(noise(0.2))}, "ref_audio_invalid", "audio"),
        ({"name": "x", "audio": "https://127.0.0.1/"}, "url_not_allowed", "audio"),
        ({"name": "x"}, "invalid_parameter", "audio"),
        ({"audio": data_uri(CLIP)}, "invalid_parameter", "name"),
        ({"name": 5, "audio": data_uri(CLIP)}, "invalid_parameter", "name"),
        (
            {"name": "x", "audio": data_uri(CLIP), "consent": "a" * 501},
            "invalid_parameter",
            "consent",
        ),
    ],
)
def test_uploads_that_are_refused(
    cloning: ServerProcess, body: dict[str, Any], code: str, param: str
) -> None:
    error = cloning.client.post("/v1/audio/voices", json=body).json()["error"]
    assert (error["code"], error["param"]) == (code, param)
    assert cloning.client.get("/v1/audio/voices/x").status_code == 404


def test_clips_and_uploaded_voices_over_a_websocket(cloning: ServerProcess) -> None:
    upload(cloning, "Socket")
    extra = {"ignore_eos": True, "max_frames": 13}

    async def talk() -> tuple[list[bytes], list[str]]:
        heard, codes = [], []
        async with session(cloning.ws_url) as client:
            for fields in ({}, {"ref_audio": data_uri(CLIP)}, {"voice": "socket"}):
                await client.configure(seed=7, extra_params=extra, **fields)
                heard.append((await client.speak("Some words.")).audio)
            for bad in (noise(0.2), b"words"):
                await client.send("session.config", ref_audio=data_uri(bad))
                codes.append((await client.until("error")).last["error"]["code"])
            heard.append((await client.speak("Some words.")).audio)
        return heard, codes

    heard, codes = asyncio.run(talk())
    assert heard[0] == say(cloning)
    assert heard[1] == heard[2] == heard[3] == say(cloning, ref_audio=data_uri(CLIP))
    assert heard[0] != heard[1]
    assert codes == ["ref_audio_invalid"] * 2


def test_voices_survive_a_restart(cloning: ServerProcess, tmp_path: Path) -> None:
    loud = sounding(tone(1.5, 16_000), 16_000, "FLAC")
    assert upload(cloning, "Kept", loud).status_code == 201
    before = say(cloning, voice="kept")
    voices = str(cloning.folder / "voices")
    with ServerProcess(tmp_path, {"api": {"voices_dir": voices}}) as again:
        again.wait_ready()
        assert say(again, voice="kept") == before
