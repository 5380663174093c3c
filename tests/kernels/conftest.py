"""Without a GPU kernels run in Triton's interpreter; without Triton their tests are left out."""

import importlib.util
from pathlib import Path

import tests.interpreter  # noqa: F401

collect_ignore = [
    path.name
    for path in Path(__file__).parent.glob("test_*.py")
    if importlib.util.find_spec("triton") is None and path.name != "test_tiles.py"
]
