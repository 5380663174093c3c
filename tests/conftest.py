"""One running server for every test that needs an ordinary one, and rules for all tests."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.api.server_process import ServerProcess

# Elapsed time says more about the neighbours on the machine than about the code.
settings.register_profile("voxserve", deadline=None)
settings.load_profile("voxserve")

LONG = (
    "tests/voice/test_gate.py",
    "tests/blackbox/test_v24",
    "tests/soak/test_paced.py",
    "tests/bench/test_sweep.py",
    "tests/models/qwen3_tts/test_fused_lm.py",
    "tests/blackbox/test_v10",
    "tests/blackbox/test_v18",
    "tests/bench/test_places.py",
    "tests/engine/test_loop.py",
    "tests/cli/test_say.py",
)
"""Files that take longest. They begin first: one that begins last keeps a worker waiting."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip `gpu` tests where there is none; under VOXSERVE_REQUIRE_GPU=1 they run and fail."""
    if item.get_closest_marker("gpu") and os.environ.get("VOXSERVE_REQUIRE_GPU") != "1":
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("server")) as running:
        running.wait_ready()
        yield running
