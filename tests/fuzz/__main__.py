"""`make fuzz`: `python -m tests.fuzz --frames N --handshakes N --examples N`."""

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path

from tests.api.server_process import ServerProcess
from tests.fuzz import requests, sockets
from tests.fuzz.verdict import check_unharmed


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--handshakes", type=int, default=20_000)
    parser.add_argument("--examples", type=int, default=1000, help="requests of each route")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    chosen = parser.parse_args()
    print("seed", chosen.seed, flush=True)
    # Short texts: what is tested is what goes in, not how long it takes to say it.
    settings = {"api": {"max_input_chars": 200, "slow_reader_s": 10}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with ServerProcess(folder, settings) as server:
            server.wait_ready()
            begin = time.monotonic()
            attack = sockets.attack(server.port, chosen.handshakes, chosen.frames, chosen.seed)
            tally = asyncio.run(attack)
            took_s = round(time.monotonic() - begin, 1)
            statuses = dict(sorted(tally.statuses.items()))
            told = {"handshakes": tally.handshakes, "frames": tally.sent, "statuses": statuses}
            print(json.dumps({**told, "seconds": took_s, "problems": tally.problems[:20]}))
            assert not tally.problems
            check_unharmed(server)
            print(requests.attack(server.url, chosen.examples, chosen.seed, folder))
            check_unharmed(server)


if __name__ == "__main__":
    main()
