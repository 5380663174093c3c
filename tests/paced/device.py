"""The device half of the paced model: it sleeps, and gives a sound that costs nothing."""

import time

import torch

from tests.paced.pace import CODEC_S, PREFILL_S, step_s
from voxserve.plugin import Inputs, Outputs, State

FRAME = 1920


class PacedModel:
    def __init__(self) -> None:
        self._step_s = step_s()
        self._frame = 0.1 * torch.sin(torch.arange(FRAME) * (2 * torch.pi / 96))

    def prefill(self, io: Inputs, state: State) -> Outputs:
        time.sleep(PREFILL_S)
        return {"codes": io["rows"][:, 0]}

    def decode(self, io: Inputs, state: State) -> Outputs:
        time.sleep(self._step_s)
        return {"codes": io["inject"]}

    def codec(self, io: Inputs, state: State) -> Outputs:
        time.sleep(CODEC_S)
        rows, frames = io["codes"].shape[:2]
        return {"audio": self._frame.repeat(frames).expand(rows, -1)}

    def encode(self, io: Inputs, state: State) -> Outputs:
        raise AssertionError("the paced model takes no reference clips")
