"""What the codec is trained against: mel distances at several scales and two discriminators.

Multi-period after HiFi-GAN (Kong et al. 2020), multi-scale STFT after EnCodec (Defossez et al.
2022), both slim, with least-squares losses.
"""

import itertools

import torch
import torch.nn.functional as F
from codec import mel_filters
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm


class MelLoss(nn.Module):
    """Mean L1 of log-mel spectra at five window lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes = [(128, 10), (256, 20), (512, 40), (1024, 80), (2048, 120)]
        for size, mels in self.sizes:
            self.register_buffer(f"filters{size}", mel_filters(size, mels), persistent=False)
            self.register_buffer(f"window{size}", torch.hann_window(size), persistent=False)

    def forward(self, fake: Tensor, real: Tensor) -> Tensor:
        total = fake.new_zeros(())
        for size, _ in self.sizes:
            window, filters = getattr(self, f"window{size}"), getattr(self, f"filters{size}")
            both = torch.stft(
                torch.cat([fake, real]), size, size // 4, window=window, return_complex=True
            )
            a, b = (filters @ both.abs()).clamp(min=1e-4).log().chunk(2)
            total = total + F.l1_loss(a, b)
        return total / len(self.sizes)


class Period(nn.Module):
    """Convolutions over the waveform folded to columns of one period."""

    def __init__(self, period: int) -> None:
        super().__init__()
        self.period = period
        widths = [1, 32, 64, 128, 256]
        self.convs = nn.ModuleList(
            weight_norm(nn.Conv2d(a, b, (5, 1), (3, 1), (2, 0)))
            for a, b in itertools.pairwise(widths)
        )
        self.convs.append(weight_norm(nn.Conv2d(256, 256, (5, 1), 1, (2, 0))))
        self.last = weight_norm(nn.Conv2d(256, 1, (3, 1), 1, (1, 0)))

    def forward(self, audio: Tensor) -> tuple[Tensor, list[Tensor]]:
        x = F.pad(
            audio,
            (0, -audio.shape[-1] % self.period),
            mode="reflect" if audio.dim() > 1 else "constant",
        )
        x = x.unflatten(-1, (-1, self.period)).unsqueeze(1)
        features = []
        for conv in self.convs:
            x = F.leaky_relu(conv(x), 0.1)
            features.append(x)
        return self.last(x), features


class Spectral(nn.Module):
    """Convolutions over one complex STFT."""

    def __init__(self, size: int, width: int = 32) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("window", torch.hann_window(size), persistent=False)
        self.convs = nn.ModuleList([weight_norm(nn.Conv2d(2, width, (3, 9), 1, (1, 4)))])
        for dilation in (1, 2, 4):
            conv = nn.Conv2d(width, width, (3, 9), (1, 2), (dilation, 4), (dilation, 1))
            self.convs.append(weight_norm(conv))
        self.convs.append(weight_norm(nn.Conv2d(width, width, (3, 3), 1, 1)))
        self.last = weight_norm(nn.Conv2d(width, 1, (3, 3), 1, 1))

    def forward(self, audio: Tensor) -> tuple[Tensor, list[Tensor]]:
        with torch.autocast(audio.device.type, enabled=False):
            z = torch.stft(
                audio.float(), self.size, self.size // 4, window=self.window, return_complex=True
            )
            z = z / self.size**0.5
        x = torch.view_as_real(z).permute(0, 3, 2, 1)
        features = []
        for conv in self.convs:
            x = F.leaky_relu(conv(x), 0.1)
            features.append(x)
        return self.last(x), features


class Discriminators(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(
            [Period(p) for p in (2, 3, 5, 7, 11)] + [Spectral(s) for s in (512, 1024, 2048)]
        )

    def forward(self, audio: Tensor) -> list[tuple[Tensor, list[Tensor]]]:
        return [part(audio) for part in self.parts]


def discriminator_loss(
    judge: Discriminators, real: Tensor, fake: Tensor
) -> tuple[Tensor, list[list[Tensor]]]:
    """The loss, and the features of the real audio for `generator_loss`."""
    both = [(o.chunk(2), [f.chunk(2) for f in fs]) for o, fs in judge(torch.cat([real, fake]))]
    loss = sum(((1 - r.float()) ** 2).mean() + (f.float() ** 2).mean() for (r, f), _ in both)
    return loss, [[pair[0].detach() for pair in features] for _, features in both]


def generator_loss(real: list[list[Tensor]], fake: list) -> tuple[Tensor, Tensor]:
    """(adversarial, feature matching), sums over the discriminators; real is features alone."""
    adversarial = sum(((1 - f[0].float()) ** 2).mean() for f in fake)
    matching = sum(
        sum(
            F.l1_loss(b.float(), a.float()) / a.float().abs().mean().clamp(min=1e-3)
            for a, b in zip(r, f[1], strict=True)
        )
        / len(r)
        for r, f in zip(real, fake, strict=True)
    )
    return adversarial, matching
