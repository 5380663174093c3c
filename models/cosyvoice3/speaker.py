"""The speaker encoder of CosyVoice 3 (CAM++): Kaldi features of a clip to one vector.

A small two-dimensional network over time and frequency, then densely connected convolutions over
time, each gated by what it finds in its surroundings and in the whole clip (Wang et al., 2023).
Parameters are named as in campplus.onnx, where batch norms that follow a convolution are part of
it. Rows of one batch may differ in length: convolutions find zeros behind a row's end, and means
leave out what lies there.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from voxserve.errors import CheckpointError
from voxserve.nn.causal_conv import masked

SEGMENT = 100
"""Frames over which a gate's surroundings are averaged."""
DILATIONS = (1, 2, 2)
EPS = 1e-5

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SpeakerSizes:
    """The published sizes; a file tells its own by its shapes.

    planes: channels of the two-dimensional part; stem, growth, bottleneck: of the rest, before,
    added by and within each dense layer; layers: dense layers in each of the three groups.
    """

    mels: int = 80
    planes: int = 32
    stem: int = 128
    growth: int = 32
    bottleneck: int = 128
    layers: tuple[int, ...] = (12, 24, 16)
    size: int = 192

    @classmethod
    def of(cls, shapes: Mapping[str, Shape]) -> "SpeakerSizes":
        """The sizes of a file. Raises CheckpointError when it is of another kind."""
        layer = re.compile(r"xvector\.block(\d)\.tdnnd(\d+)\.")
        found = {match[0]: match[1] for name in shapes if (match := layer.match(name))}
        blocks = list(found.values())
        try:
            stem, rows, _ = shapes["xvector.tdnn.linear.weight"]
            planes, *_ = shapes["head.conv1.weight"]
            growth, bottleneck, _ = shapes["xvector.block1.tdnnd1.cam_layer.linear_local.weight"]
            size, *_ = shapes["xvector.dense.linear.weight"]
        except (KeyError, ValueError) as error:
            raise CheckpointError(f"no CAM++ speaker encoder: {error} is missing or odd") from error
        layers = tuple(blocks.count(str(n + 1)) for n in range(len(DILATIONS)))
        return cls(rows // planes * 8, planes, stem, growth, bottleneck, layers, size)


class BatchNorm(nn.Module):
    """Batch norm with the statistics of training, over channels [B, C, ...]."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.running_mean = nn.Parameter(torch.zeros(channels))
        self.running_var = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        return functional.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, eps=EPS
        )


class Normed(nn.Module):
    """A batch norm in the place that the file's names give it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.batchnorm = BatchNorm(channels)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.batchnorm(x)
        return out


class Residual(nn.Module):
    """Two convolutions over frequency and time, added to their input; `step` thins frequencies."""

    def __init__(self, planes: int, step: int) -> None:
        super().__init__()
        stride = (step, 1)
        self.conv1 = nn.Conv2d(planes, planes, 3, stride=stride, padding=1)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1)
        thinned = [nn.Conv2d(planes, planes, 1, stride=stride)] if step > 1 else []
        self.shortcut = nn.Sequential(*thinned)

    def forward(self, x: Tensor, frames: Tensor) -> Tensor:
        """x [B, planes, frequencies, T], zero behind a row's frames, as is what it returns."""
        y = masked(torch.relu(self.conv1(x)), frames)
        return masked(torch.relu(self.conv2(y) + self.shortcut(x)), frames)


class Head(nn.Module):
    """Features [B, mels, T] to [B, planes * mels / 8, T], seen as pictures."""

    def __init__(self, planes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, planes, 3, padding=1)
        self.layer1 = nn.ModuleList([Residual(planes, 2), Residual(planes, 1)])
        self.layer2 = nn.ModuleList([Residual(planes, 2), Residual(planes, 1)])
        self.conv2 = nn.Conv2d(planes, planes, 3, stride=(2, 1), padding=1)

    def forward(self, x: Tensor, frames: Tensor) -> Tensor:
        x = masked(torch.relu(self.conv1(x[:, None])), frames)
        for layer in (*self.layer1, *self.layer2):
            x = layer(x, frames)
        return masked(torch.relu(self.conv2(x)), frames).flatten(1, 2)


class Gate(nn.Module):
    """A convolution over time, its channels weighed by means over the clip and over a segment."""

    def __init__(self, sizes: SpeakerSizes, dilation: int) -> None:
        super().__init__()
        width = sizes.bottleneck
        self.linear_local = nn.Conv1d(
            width, sizes.growth, 3, padding=dilation, dilation=dilation, bias=False
        )
        self.linear1 = nn.Conv1d(width, width // 2, 1)
        self.linear2 = nn.Conv1d(width // 2, sizes.growth, 1)

    def forward(self, x: Tensor, frames: Tensor) -> Tensor:
        """x [B, bottleneck, T], zero behind a row's frames -> [B, growth, T]."""
        whole = x.sum(dim=2, keepdim=True) / frames[:, None, None]
        weights = torch.relu(self.linear1(whole + segment_means(x, frames)))
        out: Tensor = self.linear_local(x) * torch.sigmoid(self.linear2(weights))
        return out


def segment_means(x: Tensor, frames: Tensor) -> Tensor:
    """The mean over each `SEGMENT` frames of x [B, C, T], for every frame of the segment.

    x is zero from column `frames` [B] on; the last segment's mean is over what it has.
    """
    steps = x.shape[2]
    count = -(-steps // SEGMENT)
    parts = functional.pad(x, (0, count * SEGMENT - steps)).view(*x.shape[:2], count, SEGMENT)
    first = torch.arange(count, device=x.device) * SEGMENT
    held = (frames[:, None] - first).clamp(1, SEGMENT)
    means = parts.sum(dim=3) / held[:, None]
    return means.repeat_interleave(SEGMENT, dim=2)[:, :, :steps]


class DenseLayer(nn.Module):
    def __init__(self, inputs: int, sizes: SpeakerSizes, dilation: int) -> None:
        super().__init__()
        self.nonlinear1 = Normed(inputs)
        self.linear1 = nn.Conv1d(inputs, sizes.bottleneck, 1)
        self.cam_layer = Gate(sizes, dilation)

    def forward(self, x: Tensor, frames: Tensor) -> Tensor:
        """x [B, inputs, T] -> x and what this layer adds to it, [B, inputs + growth, T]."""
        inner = torch.relu(self.linear1(torch.relu(self.nonlinear1(x))))
        return torch.cat((x, self.cam_layer(masked(inner, frames), frames)), dim=1)


class Transit(nn.Module):
    """Halves the channels."""

    def __init__(self, inputs: int, *, bias: bool) -> None:
        super().__init__()
        self.nonlinear = Normed(inputs)
        self.linear = nn.Conv1d(inputs, inputs // 2, 1, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(torch.relu(self.nonlinear(x)))
        return out


class Linear(nn.Module):
    """A convolution in the place that the file's names give it."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, *, bias: bool) -> None:
        super().__init__()
        self.linear = nn.Conv1d(
            inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=bias
        )


class Output(Linear):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 1, 1, bias=False)
        self.nonlinear = Normed(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """x [B, inputs] -> [B, outputs]."""
        out: Tensor = self.nonlinear(self.linear(x[:, :, None])[:, :, 0])
        return out


class Vector(nn.Module):
    """Features [B, planes * mels / 8, T] to [B, size]."""

    def __init__(self, sizes: SpeakerSizes) -> None:
        super().__init__()
        self.tdnn = Linear(sizes.planes * (sizes.mels // 8), sizes.stem, 5, 2, bias=True)
        width = sizes.stem
        for number, (layers, dilation) in enumerate(zip(sizes.layers, DILATIONS, strict=True), 1):
            block = nn.Module()
            for layer in range(layers):
                block.add_module(f"tdnnd{layer + 1}", DenseLayer(width, sizes, dilation))
                width += sizes.growth
            self.add_module(f"block{number}", block)
            # The norm behind the last one is part of it.
            self.add_module(f"transit{number}", Transit(width, bias=number == len(DILATIONS)))
            width //= 2
        self.dense = Output(2 * width, sizes.size)

    def forward(self, x: Tensor, frames: Tensor) -> Tensor:
        """x is zero from column `frames` [B] on."""
        x = torch.relu(self.tdnn.linear(x))
        frames = (frames + 1) // 2
        for number in range(1, len(DILATIONS) + 1):
            for layer in self.get_submodule(f"block{number}").children():
                x = layer(x, frames)
            x = self.get_submodule(f"transit{number}")(x)
        out: Tensor = self.dense(statistics(torch.relu(x), frames))
        return out


def statistics(x: Tensor, frames: Tensor) -> Tensor:
    """Mean and deviation of x [B, C, T] over each row's frames: [B, 2 C]."""
    count = frames[:, None].to(x.dtype)
    mean = masked(x, frames).sum(dim=2) / count
    squares = masked((x - mean[:, :, None]).pow(2), frames).sum(dim=2)
    return torch.cat((mean, torch.sqrt(squares / (count - 1))), dim=1)


class SpeakerEncoder(nn.Module):
    """See the module's docstring."""

    def __init__(self, sizes: SpeakerSizes) -> None:
        super().__init__()
        self.head = Head(sizes.planes)
        self.xvector = Vector(sizes)

    def forward(self, features: Tensor, frames: Tensor) -> Tensor:
        """features [B, mels, T] float32 at 100 Hz, frames [B] int64, at least 3 each.

        Returns [B, size], of no particular length.
        """
        means = masked(features, frames).sum(dim=2) / frames[:, None]
        centred = masked(features - means[:, :, None], frames)
        out: Tensor = self.xvector(self.head(centred, frames), frames)
        return out
