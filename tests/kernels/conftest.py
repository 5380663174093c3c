"""Without a GPU kernels run in Triton's interpreter; without Triton their tests are left out."""

import importlib.util
import os
from pathlib import Path

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined, so before its import

collect_ignore = [
    path.name
    for path in Path(__file__).parent.glob("test_*.py")
    if importlib.util.find_spec("triton") is None and path.name != "test_tiles.py"
]
