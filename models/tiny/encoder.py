"""The clip encoder of tiny: a reference clip to one vector that stands for its speaker."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from voxserve.models.tiny.config import EncoderSizes

FLOOR = 1e-4


class Encoder(nn.Module):
    """A learnt filter bank, its log energies, a hidden layer, and the mean over time."""

    def __init__(self, sizes: EncoderSizes, outputs: int) -> None:
        super().__init__()
        self.filters = nn.Conv1d(1, sizes.filters, sizes.kernel, sizes.stride, bias=False)
        self.hidden = nn.Linear(sizes.filters, sizes.hidden)
        self.output = nn.Linear(sizes.hidden, outputs)
        self.kernel, self.stride = sizes.kernel, sizes.stride

    def forward(self, audio: Tensor, lengths: Tensor) -> Tensor:
        """audio [B, samples], lengths [B] int64 real samples each. Returns [B, outputs].

        Only windows that lie within the clip count (the first one always does), so padding
        changes nothing.
        """
        energies = self.filters(audio[:, None]).pow(2).transpose(1, 2)
        inner = functional.relu(self.hidden(torch.log(energies + FLOOR)))
        windows = torch.div(lengths - self.kernel, self.stride, rounding_mode="floor") + 1
        windows = windows.clamp(min=1)
        place = torch.arange(inner.shape[1], device=audio.device)
        inside = (place < windows[:, None])[..., None]
        mean = (inner * inside).sum(dim=1) / windows[:, None]
        out: Tensor = self.output(mean)
        return out
