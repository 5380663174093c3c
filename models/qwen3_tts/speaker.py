"""The speaker encoder of Base models: a reference clip to one vector (ECAPA-TDNN on log-mels).

Follows `Qwen3TTSSpeakerEncoder` of qwen-tts 0.1.1 (Desplanques et al., 2020, without batch norm).
Nothing here is causal, so each row knows its length: convolutions mirror at the row's own end, and
means and softmax leave out what lies behind it.
"""

import torch
from torch import Tensor, nn

from voxserve.models.qwen3_tts.config import Speaker
from voxserve.nn.causal_conv import masked, reflect_pad
from voxserve.nn.mel import LogMel

RATE_HZ = 24_000
FFT = 1024
HOP = 256
MEL_HIGH_HZ = 12_000.0
VARIANCE_FLOOR = 1e-12


class Tdnn(nn.Module):
    """Convolution that mirrors at both ends, then ReLU; parameters live in `conv`."""

    def __init__(self, inputs: int, outputs: int, kernel: int, dilation: int = 1) -> None:
        super().__init__()
        self.edge = (kernel - 1) * dilation // 2
        self.conv = nn.Conv1d(inputs, outputs, kernel, dilation=dilation)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        if self.edge:
            x = reflect_pad(x, lengths, self.edge, self.edge)
        return torch.relu(self.conv(x))


class Res2Net(nn.Module):
    """Channel groups convolved one after another, each with the last one's output added."""

    def __init__(self, width: int, scale: int, kernel: int, dilation: int) -> None:
        super().__init__()
        part = width // scale
        self.scale = scale
        self.blocks = nn.ModuleList(Tdnn(part, part, kernel, dilation) for _ in range(scale - 1))

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        first, second, *rest = x.chunk(self.scale, dim=1)
        out = [first, self.blocks[0](second, lengths)]
        for part, block in zip(rest, list(self.blocks)[1:], strict=True):
            out.append(block(part + out[-1], lengths))
        return torch.cat(out, dim=1)


class SqueezeExcite(nn.Module):
    """Channel gates from the mean over time."""

    def __init__(self, width: int, squeeze: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(width, squeeze, 1)
        self.conv2 = nn.Conv1d(squeeze, width, 1)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        mean = masked(x, lengths).sum(2, keepdim=True) / lengths[:, None, None].to(x.dtype)
        return x * torch.sigmoid(self.conv2(torch.relu(self.conv1(mean))))


class Block(nn.Module):
    def __init__(self, config: Speaker, index: int) -> None:
        super().__init__()
        inputs, width = config.channels[index - 1], config.channels[index]
        kernel, dilation = config.kernels[index], config.dilations[index]
        self.tdnn1 = Tdnn(inputs, width, 1)
        self.res2net_block = Res2Net(width, config.scale, kernel, dilation)
        self.tdnn2 = Tdnn(width, width, 1)
        self.se_block = SqueezeExcite(width, config.squeeze)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        y = self.res2net_block(self.tdnn1(x, lengths), lengths)
        out: Tensor = x + self.se_block(self.tdnn2(y, lengths), lengths)
        return out


class StatisticsPooling(nn.Module):
    """Mean and deviation over time, weighted by attention that sees the plain ones too."""

    def __init__(self, width: int, attention: int) -> None:
        super().__init__()
        self.tdnn = Tdnn(3 * width, attention, 1)
        self.conv = nn.Conv1d(attention, width, 1)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """x [B, C, M] -> [B, 2 C, 1]."""
        ones = masked(torch.ones_like(x[:, :1]), lengths)
        mean, deviation = _statistics(x, ones / ones.sum(2, keepdim=True))
        whole = torch.cat((x, mean.expand_as(x), deviation.expand_as(x)), dim=1)
        scores = self.conv(torch.tanh(self.tdnn(whole, lengths)))
        weights = scores.masked_fill(ones == 0, -torch.inf).softmax(dim=2)
        return torch.cat(_statistics(x, weights), dim=1)


def _statistics(x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    mean = (weights * x).sum(2, keepdim=True)
    variance = (weights * (x - mean).pow(2)).sum(2, keepdim=True)
    return mean, torch.sqrt(variance.clamp(min=VARIANCE_FLOOR))


class SpeakerEncoder(nn.Module):
    """See the module's docstring."""

    def __init__(self, config: Speaker) -> None:
        super().__init__()
        channels, kernels, dilations = config.channels, config.kernels, config.dilations
        middle = [Block(config, i) for i in range(1, len(channels) - 1)]
        first = Tdnn(config.mels, channels[0], kernels[0], dilations[0])
        self.blocks = nn.ModuleList([first, *middle])
        self.mfa = Tdnn(channels[-1], channels[-1], kernels[-1], dilations[-1])
        self.asp = StatisticsPooling(channels[-1], config.attention)
        self.fc = nn.Conv1d(2 * channels[-1], config.size, 1)
        self.log_mel = LogMel(RATE_HZ, FFT, HOP, config.mels, MEL_HIGH_HZ)

    def forward(self, audio: Tensor, lengths: Tensor) -> Tensor:
        """audio [B, T] float32 at 24 kHz, lengths [B] int64 samples -> [B, size] as the weights."""
        x, frames = self.log_mel(audio, lengths)
        x, kept = x.to(self.fc.weight.dtype), []
        for block in self.blocks:
            x = block(x, frames)
            kept.append(x)
        x = self.mfa(torch.cat(kept[1:], dim=1), frames)
        out: Tensor = self.fc(self.asp(x, frames))[:, :, 0]
        return out
