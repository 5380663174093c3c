"""`python -m voxserve.engine --fd N --config JSON`: one engine process.

N is an inherited, connected AF_UNIX stream socket to the API process. Exits with code 0 once
drained or when the socket closes, with another one after an error that it cannot survive.
"""

import argparse
import gc
import json
import logging
import os
import signal
import socket
import sys
from types import FrameType

from voxserve import json_logs
from voxserve.config import Config
from voxserve.engine.channel import Channel, ChannelClosed
from voxserve.engine.loop import Loop
from voxserve.engine.start import Announcer, assemble, load
from voxserve.errors import CheckpointError
from voxserve.wire import Ready

_log = logging.getLogger("voxserve.engine")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m voxserve.engine")
    parser.add_argument("--fd", type=int, required=True, help="inherited socket")
    parser.add_argument("--config", required=True, help="the whole configuration as JSON")
    arguments = parser.parse_args()
    config = Config(**json.loads(arguments.config))
    json_logs.configure({"": config.api.log_level})
    # Ctrl-C reaches the whole process group; only the API process decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = Channel(socket.socket(fileno=arguments.fd))
    try:
        return _serve(config, channel)
    except ChannelClosed:
        _log.info("the API process closed the socket")
        return 0
    except (CheckpointError, ValueError) as error:
        _log.error("%s", error)
        return 2
    except SystemExit as leaving:
        return int(leaving.code or 0)


def _serve(config: Config, channel: Channel) -> int:
    announcer = Announcer(channel)
    host, model = load(config, announcer.report)
    loop = assemble(config, host, model, channel, announcer.report)
    announcer.stop()
    _drain_on_sigterm(loop)
    channel.send(Ready(config.engine.slots, os.getpid()))
    gc.collect()
    gc.freeze()
    gc.disable()  # the loop collects while nothing runs
    served = False
    try:
        loop.serve()
        served = True
    finally:
        loop.close(wait=served)
    return 0


def _drain_on_sigterm(loop: Loop) -> None:
    """First SIGTERM: finish what runs, as a service manager may signal all processes at once.
    Second: leave at once, still through `loop.close`, which completes the trace file."""

    def handle(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, leave)
        loop.drain()

    def leave(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, handle)


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    # An ordinary exit would wait for a lane that hangs.
    os._exit(code)
