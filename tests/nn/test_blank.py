"""Modules without storage."""

import subprocess
import sys

import torch
from torch import nn

from voxserve.nn.blank import blank

MODULES = """
import sys
from torch import nn
from voxserve.nn.blank import blank
with blank():
    nn.ModuleList([nn.Embedding(3, 4), nn.Linear(4, 4), nn.Conv1d(4, 4, 3), nn.LayerNorm(4)])
print("torch._dynamo" in sys.modules, "sympy" in sys.modules)
"""


def test_parameters_have_shapes_but_no_storage() -> None:
    with blank():
        layer = nn.Embedding(10**9, 10**5)
        real = torch.ones(2, device="cpu")
    assert layer.weight.shape == (10**9, 10**5)
    assert layer.weight.is_meta
    assert real.tolist() == [1, 1]


def test_modules_made_afterwards_are_ordinary() -> None:
    with blank():
        nn.Linear(2, 2)
    layer = nn.Embedding(50, 50)
    assert not layer.weight.is_meta
    assert 0.9 < layer.weight.std() < 1.1


def test_the_compiler_stays_out() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", MODULES], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == ["False", "False"]
