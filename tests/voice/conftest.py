"""A server with the embedded voice, and a listener, for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.api.server_process import ServerProcess
from tests.voice.listening import Listener


@pytest.fixture(scope="session")
def voice_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("voice"), {"model": "mini"}) as running:
        running.wait_ready()
        yield running


@pytest.fixture(scope="session")
def listener() -> Listener:
    return Listener()
