"""`POST /v1/audio/speech` where no black-box case looks."""

import base64
import gzip
import json
from typing import Any

import httpx
import pytest

from tests.api.server_process import ServerProcess, forced


def events(response: httpx.Response) -> list[tuple[str, dict[str, Any]]]:
    """The events of an SSE body; each is exactly an `event:` and a `data:` line."""
    found = []
    for block in response.text.removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        content = json.loads(data.removeprefix("data: "))
        assert name.removeprefix("event: ") == content["type"]
        found.append((content["type"], content))
    return found


@pytest.mark.parametrize("by", ["field", "header"])
def test_events_carry_the_same_audio(server: ServerProcess, by: str) -> None:
    fields = forced(30, response_format="pcm", seed=2)
    plain = server.speech(**fields)
    if by == "field":
        response = server.speech(**fields, stream_format="sse")
    else:
        accept = {"accept": "text/event-stream"}
        response = server.client.post("/v1/audio/speech", json=fields, headers=accept)
    assert response.headers["content-type"].startswith("text/event-stream")
    *deltas, (last, done) = events(response)
    assert {name for name, _ in deltas} == {"speech.audio.delta"} and last == "speech.audio.done"
    assert b"".join(base64.b64decode(delta["audio"]) for _, delta in deltas) == plain.content
    assert [delta["seq"] for _, delta in deltas] == list(range(len(deltas)))
    starts = [delta["audio_start_ms"] for _, delta in deltas]
    assert starts == sorted(starts) and starts[0] == 0 and starts[-1] < done["audio_ms"]
    assert done["audio_ms"] == 30 * 80 and done["finish_reason"] == "length"
    assert done["usage"]["total_tokens"] == done["usage"]["input_tokens"] + 30


def test_compressed_bodies_are_not_read(server: ServerProcess) -> None:
    zipped = gzip.compress(json.dumps(forced(13)).encode())
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    response = server.client.post("/v1/audio/speech", content=zipped, headers=headers)
    assert response.status_code == 415
    assert response.json()["error"]["code"] == "unsupported_media_type"
    headers["content-encoding"] = "identity"
    plain = json.dumps(forced(13))
    response = server.client.post("/v1/audio/speech", content=plain, headers=headers)
    assert response.status_code == 200


def test_stream_false_and_events_contradict(server: ServerProcess) -> None:
    response = server.speech(input="Hi.", stream=False, stream_format="sse")
    assert (response.status_code, response.json()["error"]["param"]) == (400, "stream_format")


def test_stream_true_is_raw(server: ServerProcess) -> None:
    response = server.speech(**forced(13, stream=True))
    assert response.headers["content-type"] == "audio/mpeg"
    assert response.headers["transfer-encoding"] == "chunked"


def test_request_timeout_before_the_status_line(server: ServerProcess) -> None:
    response = server.client.post(
        "/v1/audio/speech",
        json=forced(750, stream=False),
        headers={"X-Request-Timeout-Ms": "300", "X-Request-ID": "late"},
    )
    assert response.status_code == 504
    assert response.json()["error"]["code"] == "generation_timeout"
    assert server.client.get("/v1/audio/speech/late").json()["outcome"] == "failed"
    server.wait_idle()


def test_request_timeout_in_mid_stream_cuts(server: ServerProcess) -> None:
    with pytest.raises(httpx.TransportError):
        server.client.post(
            "/v1/audio/speech", json=forced(750), headers={"X-Request-Timeout-Ms": "1500"}
        )
    server.wait_idle()


@pytest.mark.parametrize("name", ["X-Request-Timeout-Ms", "X-SLO-TTFA-Ms"])
@pytest.mark.parametrize("value", ["soon", "-1", "nan", "1e99"])
def test_bad_header_is_refused(server: ServerProcess, name: str, value: str) -> None:
    response = server.client.post("/v1/audio/speech", json={"input": "Hi."}, headers={name: value})
    assert (response.status_code, response.json()["error"]["param"]) == (400, name.lower())


def test_ttfa_target_decides_the_service_level(server: ServerProcess) -> None:
    for target_ms, level in (("60000", "met"), ("0.01", "ttfa")):
        before = server.metric("voxserve_slo_total", outcome=level)
        # No stall either: so short that it is all there with the first chunk.
        fields = forced(1)
        response = server.client.post(
            "/v1/audio/speech", json=fields, headers={"X-SLO-TTFA-Ms": target_ms}
        )
        assert response.status_code == 200
        assert server.metric("voxserve_slo_total", outcome=level) == before + 1


def test_user_and_metadata_go_to_the_log_and_the_text_does_not(server: ServerProcess) -> None:
    fields = {"input": "A secret sentence.", "user": "u-1", "metadata": {"turn": 3}}
    response = server.speech(**fields, response_format="pcm")
    line = server.wait_line("request", 5, request_id=response.headers["x-request-id"])
    assert (line["user"], line["metadata"]) == ("u-1", {"turn": 3})
    assert line["audio_ms"] == len(response.content) // 48
    assert not any("secret sentence" in str(line) for line in server.lines)
