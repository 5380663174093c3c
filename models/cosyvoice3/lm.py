"""The language model: a Qwen 2 that reads text and codes and says one code a step.

Follows `CosyVoice3LM` and `Qwen2Encoder` of the reference, and `ras_sampling` for the draw.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from voxserve.models.cosyvoice3.config import LmConfig, Repetition
from voxserve.models.cosyvoice3.layout import CLIP, CODE, TEXT
from voxserve.nn.sampling import Sampling, choose, gumbel, penalise
from voxserve.nn.transformer import Attend, LayerShape, Stack


def layer_shape(config: LmConfig) -> LayerShape:
    return LayerShape(
        hidden=config.hidden,
        inner=config.inner,
        heads=config.heads,
        kv_heads=config.kv_heads,
        head=config.head,
        eps=config.eps,
        qkv_bias=True,
    )


class LanguageModel(nn.Module):
    """llm.pt, in names of our own: `weights.lm_name` says which tensor is which."""

    def __init__(self, config: LmConfig) -> None:
        super().__init__()
        self.model = Stack(layer_shape(config), config.layers, config.theta)
        self.text_embedding = nn.Embedding(config.text_vocabulary, config.hidden)
        self.speech_embedding = nn.Embedding(config.speech_vocabulary, config.hidden)
        self.llm_decoder = nn.Linear(config.hidden, config.speech_vocabulary, bias=False)

    def embed(self, rows: Tensor, clip: Tensor) -> Tensor:
        """Prompt rows [B, T, 3] int64 (`layout`) and the clips' codes [B, N] -> [B, T, hidden]."""
        place = rows[..., CLIP]
        of_clip = clip.gather(1, place.clamp(0, clip.shape[1] - 1))
        code = torch.where(place >= 0, of_clip, rows[..., CODE])
        text = self.text_embedding(rows[..., TEXT].clamp(min=0))
        speech = self.speech_embedding(code.clamp(min=0))
        return torch.where((code >= 0)[..., None], speech, text)

    def run(self, x: Tensor, positions: Tensor, attends: Sequence[Attend]) -> Tensor:
        """x [B, T, hidden] at positions [B, T] -> normed hidden states."""
        return self.model.run(x, positions, attends)


class Sampler:
    """The draw of one code a row, with the repetition-aware second draw.

    A code that was said `limit` times among the last `window` ones is drawn again, once, from all
    codes but itself, without top-k and top-p. At temperature 0 both draws take the likeliest code.
    """

    def __init__(self, config: LmConfig, repetition: Repetition) -> None:
        self.codes = config.codes
        self.end = config.end
        self.limit = repetition.limit

    def draw(
        self,
        logits: Tensor,
        values: Tensor,
        seeds: Tensor,
        steps: Tensor,
        mute: Tensor,
        said: Tensor,
        recent: Tensor,
    ) -> Tensor:
        """logits [B, V] float32, overwritten. values [B, 5]: `limits.SAMPLING`. seeds, steps: [B]
        int64. mute [B] bool: the speech may not end. said [B, V] bool: codes that were said.
        recent [B, window] int64: the last ones, -1 where there are none yet.
        Returns [B] int64: a code, or `end` for any id that ends the speech.
        """
        logits = penalise(logits, said, values[:, 3])
        mute = mute | (steps < values[:, 4])
        logits[:, self.codes :].masked_fill_(mute[:, None], -torch.inf)
        noise = gumbel(seeds, steps, range(2), logits.shape[1])
        sampling = Sampling.of(values[:, 0], values[:, 1], values[:, 2])
        first = choose(logits, sampling, noise[:, 0])
        again = (recent == first[:, None]).sum(dim=1) >= self.limit
        logits.scatter_(1, first[:, None], -torch.inf)
        second = torch.addcmul(logits / sampling.divisor, noise[:, 1], sampling.luck).argmax(dim=1)
        code = torch.where(again, second, first)
        return torch.where(code >= self.codes, self.end, code)
