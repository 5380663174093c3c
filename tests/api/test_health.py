import re

import pytest

from tests.api.server_process import ServerProcess, forced, poll

# Of the metrics that the API promises, those that this version can know.
PROMISED = re.findall(
    r"\w+",
    """
requests_total requests_in_flight requests_waiting ttfa_seconds_bucket queue_seconds_bucket
e2e_seconds_bucket rtf_bucket audio_seconds_total underrun_seconds_bucket slo_total
lane_busy_ratio codec_dispatch_total kv_pages codec_slots aborts_total
abort_release_seconds_bucket runaway_stops_total ws_sessions ws_cancel_seconds_bucket
send_buffer_bytes slow_client_closed_total engine_step_age_seconds engine_restarts_total
gc_pause_seconds_bucket encoder_seconds_bucket build_info prefills_total chunk_slack_seconds_bucket
codec_batch_size_bucket
""",
)


def test_health_and_version(server: ServerProcess) -> None:
    server.wait_idle()
    health = server.client.get("/health").json()
    assert health["status"] == "ready" and health["model"] == "tiny"
    assert (health["slots"], health["slots_free"], health["waiting"]) == (16, 16, 0)
    version = server.client.get("/version").json()
    assert version["model"] == "tiny" and version["deterministic"] is True
    assert len(version["config"]) == 12


@pytest.mark.parametrize(
    "path", ["/live", "/ready", "/health", "/version", "/v1/models", "/v1/audio/voices", "/docs"]
)
def test_head_is_get_without_the_body(server: ServerProcess, path: str) -> None:
    got, head = server.client.get(path), server.client.head(path)
    assert head.status_code == got.status_code == 200
    assert head.headers["content-type"] == got.headers["content-type"]
    assert abs(int(head.headers["content-length"]) - len(got.content)) < 20  # uptime may grow
    assert head.content == b""
    # The connection is still in step.
    assert server.client.get("/live").json() == {"status": "live"}


def test_head_of_what_cannot_be_got(server: ServerProcess) -> None:
    assert server.client.head("/nothing").status_code == 404
    answer = server.client.head("/v1/audio/speech")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


def test_models_and_voices(server: ServerProcess) -> None:
    (model,) = server.client.get("/v1/models").json()["data"]
    assert model == server.client.get(f"/v1/models/{model['id']}").json()
    assert model["audio"]["sample_rate"] == 24_000 and model["audio"]["channels"] == 1
    assert model["audio"]["text_streaming"] is True
    voices = server.client.get("/v1/audio/voices").json()
    assert voices["voices"] == model["audio"]["voices"]
    assert [voice["name"] for voice in voices["data"]] == voices["voices"]


def test_metrics(server: ServerProcess) -> None:
    assert server.speech(**forced(13)).status_code == 200

    def missing() -> set[str]:
        text = server.client.get("/metrics").text
        return {name for name in PROMISED if f"voxserve_{name}{{" not in text}

    # Counters with labels show up with their first event, those of the engine with its next word.
    rare = {"aborts_total", "runaway_stops_total", "slow_client_closed_total"}
    poll("every metric", lambda: missing() <= rare, 5)
    labels = {"route": "/v1/audio/speech", "status": "200", "format": "mp3", "model": "tiny"}
    before = server.metric("voxserve_requests_total", **labels)
    audio_s = server.metric("voxserve_audio_seconds_total")
    assert server.speech(**forced(25)).status_code == 200
    assert server.metric("voxserve_requests_total", **labels) == before + 1
    assert server.metric("voxserve_audio_seconds_total") - audio_s == pytest.approx(2.0)
