"""The language model: phonemes to frames of six codes, one frame a step.

A text encoder reads the phonemes both ways and predicts each one's duration. The durations lay the
text out over the frames, so the decoder always knows which phoneme it is in: it cannot skip, loop
or run on. The decoder is a causal transformer over frames: its input is the last step's codes plus
the text at this frame. Codebook k of frame f is emitted at step f + k (delay pattern).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from codec import CODEBOOKS, CODES
from torch import Tensor, nn

SYMBOLS = 178
UNITS_A_FRAME = 2
PAD = CODES  # the code "none yet": before frame 0, after the last frame, and hidden history
TEXT_WIDTH, TEXT_LAYERS, TEXT_HEADS, TEXT_FF = 256, 4, 4, 768
WIDTH, LAYERS, HEADS, FF = 384, 4, 6, 1024
LAYOUT_BLOCKS, LAYOUT_KERNEL = 2, 7


def rotate(x: Tensor, position: Tensor) -> Tensor:
    """Rotary positions: x [B, H, T, D], position [T] or [B, T]."""
    half = x.shape[-1] // 2
    rate = 10_000 ** (-torch.arange(half, device=x.device) / half)
    angle = position.unsqueeze(-1) * rate
    if angle.dim() == 3:
        angle = angle.unsqueeze(1)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Layer(nn.Module):
    """Pre-norm attention and SwiGLU."""

    def __init__(self, width: int, heads: int, ff: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 2 * ff, bias=False)
        self.down = nn.Linear(ff, width, bias=False)

    def forward(
        self, x: Tensor, mask: Tensor | None, causal: bool, cache: list[Tensor] | None = None
    ) -> Tensor:
        """x [B, T, C]; mask [B, 1, 1, T] True where attended; cache [k, v] grows when given."""
        past = cache[0].shape[2] if cache else 0
        position = torch.arange(past, past + x.shape[1], device=x.device)
        q, k, v = (
            t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for t in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        q, k = rotate(q, position), rotate(k, position)
        if cache is not None:
            if cache:
                k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
            cache[:] = [k, v]
        y = F.scaled_dot_product_attention(
            q, k, v, mask, is_causal=causal and past == 0 and x.shape[1] > 1
        )
        x = x + F.dropout(self.out(y.transpose(1, 2).flatten(2)), self.dropout, self.training)
        gate, value = self.up(self.norm2(x)).chunk(2, -1)
        return x + F.dropout(self.down(F.silu(gate) * value), self.dropout, self.training)


class LayoutBlock(nn.Module):
    """ConvNeXt block over the frames of the laid-out text, centred; [B, F, C]."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: Tensor, inside: Tensor) -> Tensor:
        """inside [B, F, 1] is 0 after a row's end, so that padding changes nothing."""
        y = self.depthwise((x * inside).transpose(1, 2)).transpose(1, 2)
        return x + self.down(F.gelu(self.up(self.norm(y))))


@dataclass(frozen=True)
class Layout:
    """Where every unit of a row lies: [B, 2F] phoneme index, and [B, 2F, 3] ages in units."""

    phoneme: Tensor
    ages: Tensor
    frames: Tensor


def lay_out(units: Tensor, frames: int) -> Layout:
    """units [B, N] int64 per phoneme, 0 for padding; the last one is held to the frame's end."""
    ends = units.cumsum(1)
    at = torch.arange(UNITS_A_FRAME * frames, device=units.device)
    at = torch.minimum(at.expand(len(units), -1), ends[:, -1:] - 1).contiguous()
    phoneme = torch.searchsorted(ends, at, right=True)
    length = units.gather(1, phoneme)
    left = ends.gather(1, phoneme) - at
    ages = torch.stack([length - left, left, length], -1).float().log1p()
    return Layout(phoneme, ages, (ends[:, -1] + UNITS_A_FRAME - 1) // UNITS_A_FRAME)


class VoiceLM(nn.Module):
    def __init__(
        self, dropout: float = 0.1, codebooks: int = CODEBOOKS, layers: int = LAYERS
    ) -> None:
        super().__init__()
        self.codebooks = codebooks
        self.symbols = nn.Embedding(SYMBOLS, TEXT_WIDTH)
        self.context = nn.Conv1d(TEXT_WIDTH, TEXT_WIDTH, 5, padding=2)
        self.text = nn.ModuleList(
            Layer(TEXT_WIDTH, TEXT_HEADS, TEXT_FF, dropout) for _ in range(TEXT_LAYERS)
        )
        self.text_norm = nn.RMSNorm(TEXT_WIDTH)
        self.length = nn.Sequential(nn.Linear(TEXT_WIDTH, 256), nn.GELU(), nn.Linear(256, 1))
        self.place = nn.Linear(UNITS_A_FRAME * (TEXT_WIDTH + 3), WIDTH)
        self.layout = nn.ModuleList(LayoutBlock(WIDTH, LAYOUT_KERNEL) for _ in range(LAYOUT_BLOCKS))
        self.codes = nn.Embedding(codebooks * (CODES + 1), WIDTH)
        self.layers = nn.ModuleList(Layer(WIDTH, HEADS, FF, dropout) for _ in range(layers))
        self.norm = nn.RMSNorm(WIDTH)
        self.heads = nn.Linear(WIDTH, codebooks * CODES, bias=False)
        nn.init.normal_(self.codes.weight, std=0.02)

    def read(self, ids: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
        """ids [B, N] int64, inside [B, N] bool. Returns text [B, N, C] and natural units [B, N]."""
        x = self.symbols(ids) * inside.unsqueeze(-1)
        x = x + F.gelu(self.context(x.transpose(1, 2)).transpose(1, 2))
        for layer in self.text:
            x = layer(x, inside[:, None, None], causal=False)
        x = self.text_norm(x)
        return x, self.length(x).squeeze(-1).float().clamp(max=5).exp()

    def condition(self, text: Tensor, layout: Layout, frames: int) -> Tensor:
        """What the decoder is told at each frame, [B, F, C]."""
        index = layout.phoneme.unsqueeze(-1).expand(-1, -1, text.shape[-1])
        units = torch.cat([text.gather(1, index), layout.ages.to(text.dtype)], -1)
        inside = (
            (torch.arange(frames, device=text.device) < layout.frames[:, None])
            .unsqueeze(-1)
            .to(text.dtype)
        )
        x = self.place(units.unflatten(1, (frames, UNITS_A_FRAME)).flatten(2))
        for block in self.layout:
            x = block(x, inside)
        return x * inside

    def step(
        self, previous: Tensor, told: Tensor, caches: list[list[Tensor]] | None = None
    ) -> Tensor:
        """previous [B, S, K] codes of the step before, told [B, S, C]. -> logits [B, S, K, 625]."""
        x = self.frame(previous, told, caches)
        return self.heads(x).unflatten(-1, (self.codebooks, CODES))

    def frame(
        self, previous: Tensor, told: Tensor, caches: list[list[Tensor]] | None = None
    ) -> Tensor:
        """The decoder without its heads, [B, S, C]."""
        offset = torch.arange(self.codebooks, device=previous.device) * (CODES + 1)
        x = self.codes(previous + offset).sum(2) + told
        for i, layer in enumerate(self.layers):
            x = layer(x, None, causal=True, cache=None if caches is None else caches[i])
        return self.norm(x)

    def losses(
        self, codes: Tensor, told: Tensor, spoil: Callable[[Tensor], Tensor]
    ) -> list[Tensor]:
        """Cross-entropy of each codebook of codes [B, F, K]; spoil: what to do to the history."""
        target = delay(codes)
        previous = F.pad(target[:, :-1], (0, 0, 1, 0), value=PAD)
        logits = self.step(spoil(previous), F.pad(told, (0, 0, 0, self.codebooks - 1)))
        return [cross_entropy(logits[:, :, k], target[:, :, k]) for k in range(self.codebooks)]

    def generate(self, told: Tensor, frames: Tensor, temperature: float) -> Tensor:
        """Sample codes [B, F, K]; row b's are PAD from frames[b] on."""
        told = F.pad(told, (0, 0, 0, self.codebooks - 1))
        caches: list[list[Tensor]] = [[] for _ in self.layers]
        last = torch.full((len(told), 1, self.codebooks), PAD, device=told.device)
        steps = []
        for s in range(told.shape[1]):
            last = sample(self.step(last, told[:, s : s + 1], caches)[:, 0], temperature)
            for k in range(self.codebooks):
                outside = torch.full_like(frames, s < k, dtype=torch.bool) | (s - k >= frames)
                last[:, k] = torch.where(outside, PAD, last[:, k])
            last = last.unsqueeze(1)
            steps.append(last)
        return undelay(torch.cat(steps, 1))


def delay(codes: Tensor) -> Tensor:
    """[B, F, K] codes (PAD after a row's end) to [B, F + K - 1, K], codebook k k steps later."""
    rows, frames, books = codes.shape
    out = codes.new_full((rows, frames + books - 1, books), PAD)
    for k in range(books):
        out[:, k : k + frames, k] = codes[:, :, k]
    return out


def undelay(steps: Tensor) -> Tensor:
    books = steps.shape[-1]
    frames = steps.shape[1] - books + 1
    return torch.stack([steps[:, k : k + frames, k] for k in range(books)], -1)


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Mean over logits [B, S, 625] whose target [B, S] is not PAD."""
    target = torch.where(target == PAD, -100, target)
    return F.cross_entropy(logits.flatten(0, 1).float(), target.flatten(), ignore_index=-100)


def sample(logits: Tensor, temperature: float) -> Tensor:
    """One code of each [..., 625]."""
    logits = logits.float()
    noise = -torch.empty_like(logits).exponential_().log() if temperature > 0 else 0
    return (logits + temperature * noise).argmax(-1)


@torch.no_grad()
def speak(
    model: VoiceLM,
    ids: Tensor,
    inside: Tensor,
    temperature: float = 0.7,
    pace: float = 1.0,
    units: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Sample codes [B, F, K] and each row's frames [B] for phonemes ids [B, N]."""
    text, natural = model.read(ids, inside)
    if units is None:
        units = (natural / pace).round().clamp(min=1).long()
    units = units * inside
    total = int((units.sum(1).max() + UNITS_A_FRAME - 1) // UNITS_A_FRAME)
    layout = lay_out(units, total)
    told = model.condition(text, layout, total)
    return model.generate(told, layout.frames, temperature), layout.frames
