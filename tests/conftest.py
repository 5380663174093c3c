"""One running server for every test that needs an ordinary one."""

from collections.abc import Iterator

import pytest

from tests.api.server_process import ServerProcess


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("server")) as running:
        running.wait_ready()
        yield running
