"""Which number of threads suits the embedded voice on this machine's CPU: the real engine, no HTTP.

For every number of threads a lane may use inside one operation (`engine.threads`) it starts an
engine of mini, has some streams speak one sentence after another, and prints one JSON line a number
of streams: milliseconds to the first audio (median and worst), how many times real time one stream
is made (median), and seconds of audio a second of all together.

    python -m benchmarks.voice_threads [--threads 1 2 4 8 16] [--streams 1 4 8] [--sentences 3]
"""

import argparse
import json
import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from tests.engine.harness import Api, serving
from tests.models.mini_rows import bundled
from voxserve.config import EngineConfig, load_config
from voxserve.engine.threads import threads_of, usable_cores
from voxserve.models.mini import plugin
from voxserve.models.mini.config import SAMPLE_RATE_HZ
from voxserve.plugin import HostLogic, Target
from voxserve.requests import SpeechRequest

SENTENCES = (Path(__file__).parents[1] / "tests" / "voice" / "gate_40.txt").read_text("utf-8")
IN_ADVANCE_S = 60.0
"""How long a stream may wait for its first audio: nothing is refused here."""


@dataclass
class Stream:
    """The sentences of one client, by their number in the engine, and what was seen of them."""

    left: list[int]
    at: int = 0
    sent_s: float = 0.0
    first_s: float = 0.0


def drive(api: Api, host: HostLogic, streams: int, sentences: int, first: int) -> dict[str, object]:
    """Let `streams` clients say `sentences` each; numbers count from `first`."""
    texts = SENTENCES.splitlines()
    clients = [
        Stream(list(range(first + n * sentences, first + (n + 1) * sentences)))
        for n in range(streams)
    ]
    waits: list[float] = []
    speeds: list[float] = []
    audio_s = 0.0

    def submit(client: Stream) -> None:
        client.at, client.first_s = client.left.pop(0), 0.0
        request = SpeechRequest(text=texts[client.at % len(texts)], seed=client.at)
        client.sent_s = time.monotonic()
        api.submit(client.at, host.prompt(request), ttfa_s=IN_ADVANCE_S)

    begin = time.monotonic()
    for client in clients:
        submit(client)
    active = list(clients)
    while active:
        api.read()
        now = time.monotonic()
        for client in list(active):
            heard = api.heard[client.at]
            if heard.chunks and not client.first_s:
                client.first_s = now
                waits.append(now - client.sent_s)
            if heard.end is None:
                continue
            made_s = len(heard.pcm) / 2 / SAMPLE_RATE_HZ
            assert made_s > 0, heard.end
            audio_s += made_s
            speeds.append(made_s / (now - client.sent_s))
            if client.left:
                submit(client)
            else:
                active.remove(client)
    return {
        "streams": streams,
        "first_audio_ms": [round(1000 * value) for value in (statistics.median(waits), max(waits))],
        "x_realtime": round(statistics.median(speeds), 2),
        "audio_s_a_s": round(audio_s / (time.monotonic() - begin), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--sentences", type=int, default=3, help="of every stream")
    args = parser.parse_args()
    checkpoint = bundled()
    host = plugin.host(checkpoint)
    model = plugin.load(checkpoint, Target("cpu", "float32"))
    default = threads_of(EngineConfig(), "cpu", usable_cores())
    for threads in args.threads:
        torch.set_num_threads(threads)
        engine = {"device": "cpu", "slots": max(args.streams), "threads": threads}
        overrides = {"model": "mini", "policy": {"refuse": False}, "engine": engine}
        config = load_config(None, overrides)
        started = time.monotonic()
        with serving(config, host, model) as (api, _):
            ready_s = time.monotonic() - started
            drive(api, host, 1, 1, 1_000_000)
            for number, streams in enumerate(args.streams):
                line = drive(api, host, streams, args.sentences, 1 + 10_000 * number)
                line = {"threads": threads, "is_default": threads == default, **line}
                machine = {"ready_s": round(ready_s, 1), "cores": os.cpu_count()}
                print(json.dumps({**line, **machine, "torch": torch.__version__}), flush=True)


if __name__ == "__main__":
    main()
