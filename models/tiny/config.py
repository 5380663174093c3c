"""The configuration of tiny, its vocabularies, and the state it keeps. No torch.

Text ids: a byte of UTF-8 each, then PAD, BOS, END. Code ids of codebook 0: the codes, EOS, and
behind it those that only prompts use: BOS, PAD, CLIP, the languages, the voices.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from voxserve.checkpoint_config import checked, reading
from voxserve.errors import CheckpointError
from voxserve.plugin import StateTensor

TEXT_PAD, TEXT_BOS, TEXT_END, TEXT_IDS = 256, 257, 258, 259
POOL = "kv"
PAGE_UNITS = 64
SAMPLE_RATE_HZ = 24_000
UNIT_KERNEL = 7
NEVER = 2**40
"""Step of an end mark that has not come yet."""


@dataclass(frozen=True, slots=True)
class Body:
    """Sizes of a stack of decoder layers."""

    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head: int
    eps: float
    theta: float


@dataclass(frozen=True, slots=True)
class CodecSizes:
    """The codec: a causal transformer over frames, then convolutions up to audio.

    channels: before, between and behind the blocks of `rates`. window: frames that a frame sees,
    itself included.
    """

    code_width: int
    body: Body
    window: int
    upsamplings: tuple[int, ...]
    rates: tuple[int, ...]
    channels: tuple[int, ...]
    dilations: tuple[int, ...]

    @property
    def samples_per_frame(self) -> int:
        samples = 1
        for factor in (*self.upsamplings, *self.rates):
            samples *= factor
        return samples


@dataclass(frozen=True, slots=True)
class EncoderSizes:
    filters: int
    kernel: int
    stride: int
    hidden: int


@dataclass(frozen=True, slots=True)
class TinyConfig:
    """eos_offset is added to the end code's logit, and eos_slope for every step since the text's
    end mark, so that random weights stop soon after their text, and hardly ever before."""

    seed: int
    voices: Mapping[str, str]
    languages: tuple[str, ...]
    max_context: int
    lm: Body
    depth_layers: int
    codebooks: int
    codes: int
    eos_offset: float
    eos_slope: float
    codec: CodecSizes
    encoder: EncoderSizes

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """From a parsed config.json. Raises CheckpointError naming what is missing or unknown."""
        values = {name: value for name, value in config.items() if name != "model_type"}
        with reading("tiny"):
            codec = dict(values.pop("codec"))
            lists = ("upsamplings", "rates", "channels", "dilations")
            codec |= {name: tuple(codec[name]) for name in lists}
            made = cls(
                lm=Body(**values.pop("lm")),
                languages=tuple(values.pop("languages")),
                codec=CodecSizes(body=Body(**codec.pop("body")), **codec),
                encoder=EncoderSizes(**values.pop("encoder")),
                **values,
            )
        if not made.voices or "auto" not in made.languages:
            raise CheckpointError("configuration of tiny: no voices, or no language auto")
        return checked(made, "tiny")

    @property
    def eos(self) -> int:
        return self.codes

    @property
    def code_bos(self) -> int:
        return self.codes + 1

    @property
    def code_pad(self) -> int:
        return self.codes + 2

    @property
    def code_clip(self) -> int:
        return self.codes + 3

    def code_language(self, language: str) -> int:
        return self.codes + 4 + self.languages.index(language)

    def code_voice(self, voice: str) -> int:
        return self.codes + 4 + len(self.languages) + list(self.voices).index(voice)

    @property
    def code_ids(self) -> int:
        return self.codes + 4 + len(self.languages) + len(self.voices)

    @property
    def pages(self) -> int:
        """Pages of the longest request."""
        return -(-self.max_context // PAGE_UNITS)

    def state(self) -> tuple[StateTensor, ...]:
        """All state, of the LM and of the codec."""
        lm = self.lm
        page = (2, PAGE_UNITS, lm.kv_heads, lm.head)
        return (
            StateTensor("lm.pages", (self.pages,), "int64"),
            StateTensor("lm.prompt", (), "int64"),
            StateTensor("lm.text_end", (), "int64"),
            StateTensor("lm.codes", (self.codebooks,), "int64"),
            StateTensor("lm.said", (self.codes + 1,), "bool"),
            StateTensor("lm.sampling", (5,), "float32"),
            StateTensor("lm.seed", (), "int64"),
            StateTensor("lm.ignore_eos", (), "bool"),
            *(
                StateTensor(f"lm.kv.{layer}", page, scope="page", pool=POOL)
                for layer in range(lm.layers)
            ),
            StateTensor("lm.speaker", (lm.hidden,), scope="clip"),
            *(
                StateTensor(f"codec.{name}", shape)
                for name, shape in codec_state(self.codec).items()
            ),
        )


def codec_state(sizes: CodecSizes) -> dict[str, tuple[int, ...]]:
    """Name and shape of what each layer of the codec remembers, in the order of the layers."""
    body = sizes.body
    window = (2, sizes.window - 1, body.kv_heads, body.head)
    state: dict[str, tuple[int, ...]] = {"enter": (sizes.code_width, 2)}
    state |= {f"window.{layer}": window for layer in range(body.layers)}
    for stage, _ in enumerate(sizes.upsamplings):
        state[f"upsampling.{stage}"] = (body.hidden, UNIT_KERNEL - 1)
    state["widen"] = (body.hidden, UNIT_KERNEL - 1)
    for block, channels in enumerate(sizes.channels[1:]):
        state[f"block.{block}.up"] = (sizes.channels[block], 1)
        for unit, dilation in enumerate(sizes.dilations):
            state[f"block.{block}.unit.{unit}"] = (channels, (UNIT_KERNEL - 1) * dilation)
    state["leave"] = (sizes.channels[-1], UNIT_KERNEL - 1)
    return state
