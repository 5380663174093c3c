"""A server with the embedded voice, and a listener, for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.api.server_process import ServerProcess
from tests.voice.listening import Listener
from tests.voice.speaking import TOGETHER

SETTINGS = {"model": "mini", "engine": {"slots": TOGETHER}}
"""No more slots than are used at a time: each size of a batch is run before the server is ready."""


@pytest.fixture(scope="session")
def voice_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("voice"), SETTINGS) as running:
        running.wait_ready()
        yield running


@pytest.fixture(scope="session")
def listener() -> Listener:
    return Listener()
