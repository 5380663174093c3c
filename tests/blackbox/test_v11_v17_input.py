"""V11, V12, V14–V17, V43, V44: what is refused, and how."""

import json
import socket
from typing import Any

import pytest

from tests.api.server_process import ServerProcess, forced, has_no_traceback

ALLOWED_MS = 50.0


def refused(server: ServerProcess, content: str | bytes, **headers: str) -> dict[str, Any]:
    """Send a body that deserves a 400; its error. The answer was quick and in our shape."""
    headers = {"content-type": "application/json", **headers}
    response = server.client.post("/v1/audio/speech", content=content, headers=headers)
    assert response.status_code == 400, response.text
    assert has_no_traceback(response.text)
    assert response.headers["x-should-retry"] == "false"
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code", "request_id"}
    assert error["type"] == "invalid_request_error"
    assert error["request_id"] == response.headers["x-request-id"]
    return error


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"input": ""}, "input_empty"),
        ({"input": " "}, "input_empty"),
        ({"input": "\n\t"}, "input_empty"),
        ({"input": "\u200b\ufeff"}, "input_empty"),
        ({}, "input_empty"),
        ({"input": None}, "input_empty"),
        ({"input": 5}, "invalid_parameter"),
        ({"input": []}, "invalid_parameter"),
        ({"input": "a\u0000b"}, "invalid_parameter"),
        ({"input": "\ud83d"}, "invalid_parameter"),
        ({"input": "a" * 20_000}, "input_too_long"),
    ],
)
def test_v11_bad_input(server: ServerProcess, body: dict[str, Any], code: str) -> None:
    error = refused(server, json.dumps(body))
    assert (error["code"], error["param"]) == (code, "input")


def test_v11_refusals_are_quick_and_leave_the_server_well(server: ServerProcess) -> None:
    times = []
    for _ in range(9):
        response = server.speech(input=" ")
        times.append(response.elapsed.total_seconds() * 1000)
    assert sorted(times)[4] < ALLOWED_MS
    assert server.speech(**forced(13)).status_code == 200


def test_v13_text_at_the_limit(server: ServerProcess) -> None:
    limit = server.client.get("/v1/models").json()["data"][0]["audio"]["max_input_chars"]
    fields = {**forced(13), "input": "a" * limit + " \n"}
    assert server.speech(**fields).status_code == 200
    error = refused(server, json.dumps({"input": "a" * (limit + 1)}))
    assert error["code"] == "input_too_long"
    assert str(limit) in error["message"] and str(limit + 1) in error["message"]


@pytest.mark.parametrize("text", ["😀😀", "…", "?!", "—"])
def test_v12_unspeakable(server: ServerProcess, text: str) -> None:
    error = refused(server, json.dumps({"input": text}))
    assert (error["code"], error["param"]) == ("input_unspeakable", "input")
    silence = server.speech(input=text, on_unspeakable="silence", response_format="pcm")
    assert (silence.status_code, silence.content) == (200, b"")
    fields = {"input": text, "on_unspeakable": "silence", "response_format": "wav"}
    wav = server.speech(**fields, stream=False)
    assert len(wav.content) == 44 and wav.content[40:] == bytes(4)


def test_v14_voices(server: ServerProcess) -> None:
    for voice in ("RYAN", "alloy", {"id": "ryan"}):
        assert server.speech(**forced(13, voice=voice)).status_code == 200
    assert server.speech(**forced(13, speaker="Vivian")).headers["x-voice"] == "vivian"
    error = refused(server, json.dumps({"input": "Hi.", "voice": "nobody"}))
    assert (error["code"], error["param"]) == ("voice_not_found", "voice")
    assert "ryan" in error["message"]
    error = refused(server, json.dumps({"input": "Hi.", "voice": "rian"}))
    assert "nearest: ryan" in error["message"]


def test_v15_models(server: ServerProcess) -> None:
    assert server.speech(**forced(13, model="tts-1")).status_code == 200
    assert server.speech(**forced(13)).status_code == 200
    response = server.speech(input="Hi.", model="nope")
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"
    assert response.json()["error"]["param"] == "model"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("speed", '"fast"'),
        ("speed", "0.1"),
        ("speed", "9"),
        ("speed", "-1"),
        ("temperature", "1e9"),
        ("temperature", "1e999"),
        ("seed", str(2**80)),
        ("seed", "1.5"),
        ("seed", "true"),
        ("sample_rate", "11025"),
        ("stream", '"yes"'),
        ("voice", "7"),
        ("extra_params", '{"max_frames": "many"}'),
        ("extra_params", '{"unheard_of": 1}'),
    ],
)
def test_v16_bad_values(server: ServerProcess, field: str, value: str) -> None:
    error = refused(server, f'{{"input": "Hi.", "{field}": {value}}}')
    assert error["param"].split(".")[0] == field


@pytest.mark.parametrize(
    "body",
    [
        b"[",
        b"[]",
        b'"x"',
        b"",
        b"null",
        b'{"input": "Hi.", "speed": NaN}',
        b'{"input": "Hi.", "extra_params": ' + b'{"a":' * 40 + b"1" + b"}" * 40 + b"}",
        b"[" * 100_000,
        b'{"input": "\xff"}',
        b'{"seed": ' + b"9" * 5000 + b"}",
    ],
)
def test_v16_bad_json(server: ServerProcess, body: bytes) -> None:
    assert refused(server, body)["code"] == "invalid_json"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("instructions", "Whisper."),
        ("timestamp_granularities", ["word"]),
        ("task_type", "VoiceDesign"),
    ],
)
def test_known_field_that_cannot_be_honoured(
    server: ServerProcess, field: str, value: object
) -> None:
    error = refused(server, json.dumps({"input": "Hi.", field: value}))
    assert (error["code"], error["param"]) == ("unsupported_parameter", field)


def test_v17_format_and_media_type(server: ServerProcess) -> None:
    error = refused(server, json.dumps({"input": "Hi.", "response_format": "aiff"}))
    assert error["param"] == "response_format"
    response = server.client.post(
        "/v1/audio/speech", content="<a/>", headers={"content-type": "text/xml"}
    )
    assert response.status_code == 415
    assert response.json()["error"]["code"] == "unsupported_media_type"


def test_other_refusals_have_the_same_shape(server: ServerProcess) -> None:
    for method, path, status, code in [
        ("GET", "/", 404, "route_not_found"),
        ("GET", "/v1/audio/speech", 405, "method_not_allowed"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
        ("GET", "/v1/models/nope", 404, "model_not_found"),
    ]:
        response = server.client.request(method, path)
        assert response.status_code == status, path
        assert response.json()["error"]["code"] == code
        assert response.json()["error"]["request_id"] == response.headers["x-request-id"]


def test_body_over_the_cap(server: ServerProcess) -> None:
    response = server.client.post("/v1/audio/speech", content=b"x" * (16 * 2**20 + 1))
    assert response.status_code == 413
    assert response.json()["error"]["code"] == "body_too_large"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (
            b"POST /v1/audio/speech HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{",
            b"408",
        ),
        (b"POST /v1/audio/speech HTTP/1.1\r\nhost: localhost\r\nx: ", b""),
        (b"nonsense\r\n\r\n", b"400"),
    ],
)
def test_slow_and_broken_senders(server: ServerProcess, sent: bytes, status: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(sent)
        answer = b""
        while piece := connection.recv(65_536):
            answer += piece
    if status:
        assert answer.startswith(b"HTTP/1.1 " + status)
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"]
    else:
        assert not answer


def test_bodies_without_or_with_another_content_type(server: ServerProcess) -> None:
    body = json.dumps(forced(13))
    for headers in ({}, {"content-type": "application/x-www-form-urlencoded"}):
        response = server.client.post("/v1/audio/speech", content=body, headers=headers)
        assert response.status_code == 200
    for form in ({"data": {"input": "Hi."}}, {"files": {"input": (None, "Hi.")}}):
        fields: dict[str, Any] = form
        response = server.client.post("/v1/audio/speech", **fields)
        assert response.status_code == 200
        assert response.headers["content-type"] == "audio/mpeg"


def test_v43_unknown_fields_are_named(server: ServerProcess) -> None:
    response = server.speech(**forced(13, colour="red", extra_body={"seed": 1}))
    assert response.status_code == 200
    assert response.headers["x-ignored-fields"] == "colour, extra_body"


def test_v44_request_ids(server: ServerProcess) -> None:
    fields = forced(13)
    kept = server.client.post("/v1/audio/speech", json=fields, headers={"X-Request-ID": "abc-1"})
    assert kept.headers["x-request-id"] == "abc-1"
    assert server.wait_line("request", 5, request_id="abc-1")["status"] == 200
    for bad in ("x" * 300, "a b", "ä"):
        replaced = server.client.get("/v1/models", headers={b"X-Request-ID": bad.encode()})
        assert replaced.headers["x-request-id"] not in (bad, "")
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(b"GET /live HTTP/1.1\r\nhost: localhost\r\nx-request-id: a\n b\r\n\r\n")
        assert b"x-request-id: a\n" not in connection.recv(65_536)
