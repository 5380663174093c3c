"""The codec: 24 kHz audio to 20 frames a second of six codes, and back, causally.

The encoder sees the future; the decoder does not, so it can speak each frame as it comes. A frame
(1,200 samples) is 24 numbers of five levels (finite scalar quantisation, Mentzer et al. 2023),
read as six codes of 5**4 = 625 values. The decoder is a stack of ConvNeXt blocks with an inverse
STFT head after Vocos (Siuzdak 2023), left-padded.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SAMPLE_RATE = 24_000
HOP, N_FFT = 300, 1_200
UP = 4
FRAME_SAMPLES = HOP * UP
MELS = 100
CODEBOOKS, DIMS_EACH, LEVELS = 6, 4, 5
CODES = LEVELS**DIMS_EACH
ENCODER_WIDTH = 384
WIDTH, KERNEL = 320, 7
SLOW_BLOCKS, FAST_BLOCKS = 2, 6


class Block(nn.Module):
    """ConvNeXt block over [B, C, T]; causal or centred."""

    def __init__(self, width: int, kernel: int, causal: bool, expand: int = 3) -> None:
        super().__init__()
        self.left = kernel - 1 if causal else kernel // 2
        self.right = kernel - 1 - self.left
        self.depthwise = nn.Conv1d(width, width, kernel, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, expand * width)
        self.down = nn.Linear(expand * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.3))

    def forward(self, x: Tensor) -> Tensor:
        y = self.depthwise(F.pad(x, (self.left, self.right)))
        y = self.down(F.gelu(self.up(self.norm(y.transpose(1, 2)))))
        return x + (self.scale * y).transpose(1, 2)


class Encoder(nn.Module):
    """Audio [B, F * 1200] to latents [B, F, 24] in (-2, 2); 24 is 4 a codebook, here and below."""

    def __init__(self, codebooks: int = CODEBOOKS) -> None:
        super().__init__()
        self.codebooks = codebooks
        self.register_buffer("filters", mel_filters(N_FFT, MELS), persistent=False)
        self.register_buffer("window", torch.hann_window(N_FFT), persistent=False)
        self.first = nn.Conv1d(MELS, 256, 7, padding=3)
        self.fast = nn.Sequential(*(Block(256, 7, causal=False) for _ in range(4)))
        self.pool = nn.Conv1d(256, ENCODER_WIDTH, UP, UP)
        self.slow = nn.Sequential(*(Block(ENCODER_WIDTH, 5, causal=False) for _ in range(3)))
        self.norm = nn.LayerNorm(ENCODER_WIDTH)
        self.last = nn.Linear(ENCODER_WIDTH, codebooks * DIMS_EACH)

    def forward(self, audio: Tensor) -> Tensor:
        with torch.autocast(audio.device.type, enabled=False):
            padded = F.pad(audio.float(), ((N_FFT - HOP) // 2, (N_FFT - HOP) // 2))
            spectrum = torch.stft(
                padded, N_FFT, HOP, window=self.window, center=False, return_complex=True
            )
            mel = (self.filters @ spectrum.abs()).clamp(min=1e-4).log() / 4 + 1
        x = self.pool(self.fast(self.first(mel)))
        x = self.last(self.norm(self.slow(x).transpose(1, 2)))
        return 2 * torch.tanh(x.float())


def quantise(latent: Tensor) -> Tensor:
    """Round to five levels, straight-through; [B, F, 24] in {-1, -0.5, 0, 0.5, 1}."""
    return (latent + (latent.round() - latent).detach()) / 2


def to_codes(latent: Tensor) -> Tensor:
    """[..., 24] latents to [..., 6] int64 codes."""
    digits = (latent.round().long() + 2).unflatten(-1, (-1, DIMS_EACH))
    place = torch.tensor([LEVELS**i for i in range(DIMS_EACH)], device=latent.device)
    return (digits * place).sum(-1)


def from_codes(codes: Tensor) -> Tensor:
    """[..., 6] codes to the decoder's input [..., 24] float32."""
    place = torch.tensor([LEVELS**i for i in range(DIMS_EACH)], device=codes.device)
    digits = codes.unsqueeze(-1) // place % LEVELS
    return (digits.flatten(-2).float() - 2) / 2


class Decoder(nn.Module):
    """Quantised latents [B, F, 24] to audio [B, F * 1200]; frame f needs no frame after it."""

    def __init__(self, codebooks: int = CODEBOOKS) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(N_FFT), persistent=False)
        self.first = nn.Linear(codebooks * DIMS_EACH, WIDTH)
        self.slow = nn.Sequential(*(Block(WIDTH, KERNEL, causal=True) for _ in range(SLOW_BLOCKS)))
        self.up = nn.Linear(WIDTH, UP * WIDTH)
        self.fast = nn.Sequential(*(Block(WIDTH, KERNEL, causal=True) for _ in range(FAST_BLOCKS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, N_FFT + 2)

    def forward(self, latent: Tensor) -> Tensor:
        x = self.slow(self.first(latent).transpose(1, 2)).transpose(1, 2)
        x = self.up(x).unflatten(-1, (UP, WIDTH)).flatten(1, 2)
        x = self.head(self.norm(self.fast(x.transpose(1, 2)).transpose(1, 2)))
        with torch.autocast(x.device.type, enabled=False):
            size, phase = x.float().chunk(2, -1)
            spectrum = torch.polar(size.clamp(max=6).exp(), phase)
            pieces = torch.fft.irfft(spectrum, n=N_FFT) * self.window
            pieces = pieces.unflatten(-1, (N_FFT // HOP, HOP))
            total = pieces[:, :, 0]
            for k in range(1, N_FFT // HOP):
                total = total + F.pad(pieces[:, :-k, k], (0, 0, k, 0))
            return total.flatten(1) / 1.5


def mel_filters(n_fft: int, mels: int) -> Tensor:
    """Triangular filters on the mel scale, [mels, n_fft // 2 + 1]."""

    def hz(mel: Tensor) -> Tensor:
        return 700 * (10 ** (mel / 2595) - 1)

    top = 2595 * torch.log10(torch.tensor(1 + SAMPLE_RATE / 2 / 700))
    edges = hz(torch.linspace(0, float(top), mels + 2))
    bins = torch.linspace(0, SAMPLE_RATE / 2, n_fft // 2 + 1)
    rise = (bins - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    fall = (edges[2:, None] - bins) / (edges[2:] - edges[1:-1])[:, None]
    weight = torch.minimum(rise, fall).clamp(min=0)
    return weight / weight.sum(1, keepdim=True).clamp(min=1e-3)
