"""The toy's device half: the LM repeats what it is given, the codec plays it as tones."""

import torch

from voxserve.plugin import Inputs, Outputs, State

RATE_HZ = 16_000
FRAME = 800
LOWEST_HZ = 220.0


class ToyModel:
    def prefill(self, io: Inputs, state: State) -> Outputs:
        return {"codes": io["rows"][:, 0]}

    def decode(self, io: Inputs, state: State) -> Outputs:
        return {"codes": io["inject"]}

    def codec(self, io: Inputs, state: State) -> Outputs:
        """Each code is a frame of its tone; the phase goes on from chunk to chunk."""
        slots, codes = io["slots"], io["codes"][..., 0]
        turns = torch.where(codes > 0, LOWEST_HZ / RATE_HZ * 2 ** (codes / 12), 0.0)
        turns = turns.double().repeat_interleave(FRAME, dim=1)
        start = torch.where(io["fresh"], 0.0, state["phase"][slots])
        phase = start[:, None] + turns.cumsum(dim=1)
        ends = (io["lengths"] * FRAME - 1)[:, None]
        state["phase"][slots] = phase.gather(1, ends)[:, 0] % 1
        return {"audio": 0.5 * torch.sin(2 * torch.pi * phase).float()}

    def encode(self, io: Inputs, state: State) -> Outputs:
        raise AssertionError("the toy takes no reference clips")
