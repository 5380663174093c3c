"""V38 on the embedded voice: the shortest texts end by themselves, whatever the seed."""

import statistics
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.api.server_process import ServerProcess
from tests.voice.speaking import TOGETHER

pytestmark = pytest.mark.timeout(1800)


def spoken_s(server: ServerProcess, text: str, seeds: range) -> list[float]:
    def one(seed: int) -> float:
        fields = {"input": text, "seed": seed, "response_format": "wav", "stream": False}
        answer = server.client.post("/v1/audio/speech", json=fields, timeout=300)
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-finish-reason"] == "stop"
        return int(answer.headers["x-audio-duration-ms"]) / 1000

    with ThreadPoolExecutor(TOGETHER) as pool:
        return list(pool.map(one, seeds))


@pytest.mark.parametrize("count", [4, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("text", ["1次", "a", "Hi."])
def test_v38_short_texts_stay_short(voice_server: ServerProcess, text: str, count: int) -> None:
    seconds = spoken_s(voice_server, text, range(count))
    assert max(seconds) <= max(4.0, 5 * statistics.median(seconds))
    assert min(seconds) > 0.1


def test_v38_what_the_voice_cannot_say_is_refused(voice_server: ServerProcess) -> None:
    refused = voice_server.speech(input="嗯")
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "input_unspeakable"
