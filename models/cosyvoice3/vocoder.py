"""From mel frames to sound: HiFT, streaming, exact for any cuts.

Follows `CausalHiFTGenerator` of CosyVoice with the parameter names of hift.pt. Every layer is
causal but for three places: F0 looks 3 frames ahead, the first convolution 4, and the windows of
the inverse transform overlap the next frame. So a chunk holds 8 frames back, and a request's state
is those, the last inputs of each convolution and what the excitation adds up.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from voxserve.models.cosyvoice3.config import VocoderConfig
from voxserve.models.cosyvoice3.source import F0Predictor, Source, Spectrum
from voxserve.models.cosyvoice3.state import POST_KERNEL, frame_samples, held_frames
from voxserve.models.cosyvoice3.weight_norm import NormedConv, UpsampleConv
from voxserve.nn.causal_conv import Memory, masked, reflect_pad
from voxserve.nn.rows import Rows
from voxserve.nn.snake import Snake
from voxserve.plugin import State

LOUDEST = 100.0
"""Largest magnitude of a spectral line."""


@dataclass(frozen=True, slots=True)
class Window:
    """What the decoder is given of a chunk.

    mel: [B, W, mel]. lines: [B, 18, 14 + 120 W + 1], the excitation's spectrum with what came
    before. ready: [B] int64, frames behind which the state is left. fresh, slots: [B].
    """

    mel: Tensor
    lines: Tensor
    ready: Tensor
    fresh: Tensor
    slots: Tensor


Decode = Callable[[Window, State], Tensor]
"""A window to log-magnitudes and phases [B, 18, C], at least 120 columns a frame; advances the
convolutions' state."""


class ResidualBlock(nn.Module):
    """For each dilation: Snake, dilated convolution, Snake, convolution, added to the input."""

    def __init__(self, width: int, kernel: int, dilations: tuple[int, ...]) -> None:
        super().__init__()
        self.convs1 = nn.ModuleList(
            NormedConv(width, width, kernel, dilation) for dilation in dilations
        )
        self.convs2 = nn.ModuleList(NormedConv(width, width, kernel) for _ in dilations)
        self.activations1 = nn.ModuleList(_published_snake(width) for _ in dilations)
        self.activations2 = nn.ModuleList(_published_snake(width) for _ in dilations)

    def finish(self) -> None:
        for snake in (*self.activations1, *self.activations2):
            snake.alpha = nn.Parameter(snake.alpha.reshape(1, -1, 1), requires_grad=False)

    def forward(self, x: Tensor, memory: Memory, columns: int) -> Tensor:
        layers = (self.activations1, self.convs1, self.activations2, self.convs2)
        for snake1, conv1, snake2, conv2 in zip(*layers, strict=True):
            assert isinstance(conv1, NormedConv) and isinstance(conv2, NormedConv)
            y = memory.run(conv1, snake1(x), columns)
            x = x + memory.run(conv2, snake2(y), columns)
        return x


def _published_snake(width: int) -> Snake:
    """A Snake whose parameter is [C], as the checkpoint has it, until `finish`."""
    snake = Snake(width)
    snake.alpha = nn.Parameter(torch.ones(width))
    return snake


class Vocoder(nn.Module):
    """See the module's docstring. Call `finish` once the weights are there."""

    def __init__(self, config: VocoderConfig) -> None:
        super().__init__()
        self.config = config
        self.held = held_frames(config)
        self.samples = frame_samples(config)
        self.m_source = Source(config)
        self.f0_predictor = F0Predictor(config)
        self.spectrum = Spectrum(config)
        width, bins = config.base, config.fft + 2
        self.conv_pre = NormedConv(config.mel, width, config.look_right + 1)
        self.ups, self.source_downs = nn.ModuleList(), nn.ModuleList()
        self.source_resblocks, self.resblocks = nn.ModuleList(), nn.ModuleList()
        self.strides = [self._stride(stage) for stage in range(len(config.rates))]
        for stage, (rate, kernel) in enumerate(zip(config.rates, config.kernels, strict=True)):
            half, stride = width // 2, self.strides[stage]
            self.ups.append(UpsampleConv(width, half, kernel, rate))
            down = nn.Conv1d(bins, half, 1 if stride == 1 else 2 * stride, stride=stride)
            self.source_downs.append(down)
            shape = (config.source_kernels[stage], config.source_dilations[stage])
            self.source_resblocks.append(ResidualBlock(half, *shape))
            self.resblocks.extend(
                ResidualBlock(half, *shape)
                for shape in zip(config.res_kernels, config.res_dilations, strict=True)
            )
            width = half
        self.conv_post = NormedConv(width, bins, POST_KERNEL)
        self.decode: Decode = self._plain
        self.spare_frames = 0

    def _stride(self, stage: int) -> int:
        """Columns of the excitation's spectrum for each column of a stage."""
        stride = 1
        for rate in self.config.rates[stage + 1 :]:
            stride *= rate
        return stride

    def finish(self) -> None:
        """Fold the weight norms and let F0 run in float64, since its errors add up."""
        self.f0_predictor.double()
        for module in list(self.modules()):
            if isinstance(module, NormedConv | ResidualBlock):
                module.finish()

    def run(
        self, mel: Tensor, lengths: Tensor, fresh: Tensor, last: Tensor, slots: Tensor, state: State
    ) -> Tensor:
        """One chunk of each row; its state is taken from the slots and put back advanced.

        mel: [B, T, mel] float32, new frames from the left; lengths: [B] int64, how many are real,
        more than the 8 held back in a fresh row that is not the last. fresh, last: [B] bool.
        Returns [B, (T + 8) * 480] float32, from the left as many samples as
        `state.emitted_samples` says; the rest is unspecified.
        """
        rows = Rows(state, "vocoder.", slots, fresh)
        window, total = self._window(mel, rows.take("mel"), lengths, fresh)
        ready = total - torch.where(last, 0, self.held)
        place = ready[:, None] + torch.arange(self.held, device=mel.device)
        place = place.clamp(min=0, max=window.shape[1] - 1)
        rows.put("mel", window.gather(1, place[..., None].expand(-1, -1, window.shape[2])))
        wave, start = rows.take("wave"), rows.take("frame")
        edge = Memory(wave, ready)
        f0, after = self.f0_predictor(window, rows.take("f0"), ready)
        rows.put("f0", after)
        excitation, phase = self.m_source(f0, rows.take("phase"), start, ready)
        rows.put("phase", phase)
        rows.put("frame", start + ready)
        lines = self._analyse(excitation, edge, total, fresh)
        out = self.decode(Window(window.to(lines.dtype), lines, ready, fresh, slots), state)
        audio = self._synthesise(out, edge, total, fresh, last)
        rows.put("wave", edge.after)
        return audio[:, : (mel.shape[1] + self.held) * self.samples]

    def _window(
        self, mel: Tensor, held: Tensor, lengths: Tensor, fresh: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The frames not yet given as sound, from the left, zeros behind: [B, T + 8, mel], and how
        many are real."""
        none = torch.zeros_like(held)
        late = torch.cat((held.to(mel.dtype), mel), dim=1)
        early = torch.cat((mel, none.to(mel.dtype)), dim=1)
        total = lengths + torch.where(fresh, 0, self.held)
        window = torch.where(fresh[:, None, None], early, late)
        window = functional.pad(window, (0, 0, 0, self.spare_frames))
        return masked(window.transpose(1, 2), total).transpose(1, 2), total

    def _analyse(self, excitation: Tensor, edge: Memory, total: Tensor, fresh: Tensor) -> Tensor:
        """Spectral lines [B, 18, S / 4 + 1] of the excitation [B, S], mirrored at both its ends."""
        half = self.config.fft // 2
        whole = reflect_pad(excitation[:, None], total * self.samples, half, half)
        streamed = edge.extend(excitation[:, None], half, self.samples)[..., :half]
        first = torch.where(fresh[:, None, None], whole[..., :half], streamed)
        padded = torch.cat((first, whole[..., half:]), dim=2)
        lines = self.spectrum.analyse(padded)
        lines = edge.extend(lines, self.strides[0] - 1, self.samples // self.config.hop)
        return lines.to(self.conv_pre.weight.dtype)

    def _plain(self, given: Window, state: State) -> Tensor:
        """`Decode` in plain torch: 120 W + 1 columns.

        The last stage and the lines have one column more than the frames hold: column 0 of the
        first chunk mirrors column 2, and every other chunk begins with the last one of the chunk
        before.
        """
        config, columns, fresh, lines = self.config, 1, given.fresh, given.lines
        rows = Rows(state, "vocoder.", given.slots, fresh)
        memory = Memory(rows.take("conv"), given.ready)
        reach = self.strides[0] - 1
        x = self.conv_pre.ahead(given.mel.transpose(1, 2))
        blocks = len(config.res_kernels)
        for stage, rate in enumerate(config.rates):
            up = self.ups[stage]
            assert isinstance(up, UpsampleConv)
            x = memory.run(up, functional.leaky_relu(x, config.slope), columns)
            columns *= rate
            if stage == len(config.rates) - 1:
                x = memory.extend(x, 1, columns)
                edge = torch.where(fresh[:, None, None], x[..., 2:3], x[..., :1])
                x = torch.cat((edge, x[..., 1:]), dim=2)
            source = self.source_downs[stage](lines[..., reach - self.strides[stage] + 1 :])
            x = x + self.source_resblocks[stage](source, memory, columns)
            group = self.resblocks[stage * blocks : (stage + 1) * blocks]
            x = torch.stack([block(x, memory, columns) for block in group]).mean(dim=0)
        x = memory.run(self.conv_post, functional.leaky_relu(x), columns)
        rows.put("conv", memory.after)
        return x

    def _synthesise(
        self, out: Tensor, edge: Memory, total: Tensor, fresh: Tensor, last: Tensor
    ) -> Tensor:
        """Log-magnitudes and phases [B, 18, C] to sound [B, S]."""
        bins = self.config.fft // 2 + 1
        wide = out.to(torch.promote_types(out.dtype, torch.float32))
        size, phase = wide[:, :bins].exp().clamp(max=LOUDEST), wide[:, bins:].sin()
        lines = torch.cat((size * phase.cos(), size * phase.sin()), dim=1)
        frame_lines = self.samples // self.config.hop
        lines = edge.extend(lines, 1, frame_lines)
        place = torch.arange(lines.shape[2], device=lines.device)
        end = torch.where(last, total * frame_lines + 2, lines.shape[2])
        real = (place < end[:, None]) & ((place > 0) | ~fresh[:, None])
        audio = self.spectrum.synthesise(lines, real)
        return audio.clamp(-self.config.limit, self.config.limit).float()
