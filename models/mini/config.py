"""The configuration of mini, and the state it keeps. No torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from voxserve.checkpoint_config import checked, reading
from voxserve.plugin import ModelSpec, PagePool, Range, StateTensor

SAMPLE_RATE_HZ = 24_000
UNITS_A_FRAME = 2
BLOCK = 256
"""Phonemes that the text encoder reads at once; longer texts are several blocks."""
EDGE = 0
"""The symbol at both ends of a block: silence."""
POOL = "told"
PAGE_FRAMES = 64
WINDOW = 256
"""Steps that the LM looks back: 12.8 s."""
SAMPLING_COLUMNS = 5
RANGES = {
    "temperature": Range(0.0, 1.5, 0.7),
    "top_k": Range(-1, 1000, -1),
    "top_p": Range(0.01, 1.0, 1.0),
}


@dataclass(frozen=True, slots=True)
class LmSizes:
    symbols: int
    text_width: int
    text_layers: int
    text_heads: int
    text_inner: int
    width: int
    layers: int
    heads: int
    inner: int
    layout_blocks: int
    layout_kernel: int


@dataclass(frozen=True, slots=True)
class CodecSizes:
    """codebooks of `dims_each` numbers of `levels` values; `up` hops of `hop` samples a frame."""

    codebooks: int
    dims_each: int
    levels: int
    width: int
    kernel: int
    slow_blocks: int
    fast_blocks: int
    up: int
    hop: int

    @property
    def codes(self) -> int:
        return int(self.levels**self.dims_each)

    @property
    def latent(self) -> int:
        return self.codebooks * self.dims_each

    @property
    def window(self) -> int:
        """Samples of one spectrum: four hops."""
        return 4 * self.hop


@dataclass(frozen=True, slots=True)
class MiniConfig:
    """phonemes: symbol -> id, as the text encoder knows them. max_phonemes: of one request, whole
    blocks."""

    voice: str
    lm: LmSizes
    codec: CodecSizes
    max_phonemes: int
    phonemes: Mapping[str, int]

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """From a parsed config.json. Raises CheckpointError naming what is missing or unknown."""
        values = {name: value for name, value in config.items() if name != "model_type"}
        with reading("mini"):
            lm, codec = LmSizes(**values.pop("lm")), CodecSizes(**values.pop("codec"))
            return checked(cls(lm=lm, codec=codec, **values), "mini")

    @property
    def none(self) -> int:
        """The code before a codebook's first frame, and behind the last: the end of the speech."""
        return self.codec.codes

    @property
    def lag(self) -> int:
        """Steps by which a frame's last code follows its first."""
        return self.codec.codebooks - 1

    def max_steps(self, phonemes: int) -> int:
        """More than the encoder ever takes for so many phonemes; the mean is 1.2 frames each."""
        return 2 * phonemes + 48 + self.lag

    def pages(self) -> int:
        """Pages of the longest request."""
        return -(-self.max_steps(self.max_phonemes) // PAGE_FRAMES)

    def state(self) -> tuple[StateTensor, ...]:
        lm = self.lm
        past = (2, WINDOW, lm.heads, lm.width // lm.heads)
        return (
            StateTensor("lm.pages", (self.pages(),), "int64"),
            StateTensor("lm.frames", (), "int64"),
            StateTensor("lm.codes", (self.codec.codebooks,), "int64"),
            StateTensor("lm.sampling", (SAMPLING_COLUMNS,), "float32"),
            StateTensor("lm.seed", (), "int64"),
            *(StateTensor(f"lm.past.{layer}", past) for layer in range(lm.layers)),
            StateTensor("lm.told", (PAGE_FRAMES, lm.width), scope="page", pool=POOL),
            *(
                StateTensor(f"codec.{name}", shape)
                for name, shape in codec_state(self.codec).items()
            ),
        )

    @reading("mini")
    def spec(self) -> ModelSpec:
        books = range(self.codec.codebooks)
        sizes = (64, 128, *(BLOCK << n for n in range(5)), self.max_phonemes)
        return ModelSpec(
            sample_rate_hz=SAMPLE_RATE_HZ,
            samples_per_frame=self.codec.up * self.codec.hop,
            codebooks=self.codec.codebooks,
            columns=tuple((book, book) for book in books),
            frame_buckets=(2, 4, 10),
            ramps=((2, 4, 10), (4, 10), (10,)),
            prompt_columns=1,
            inject_columns=1,
            pad_row=(0,),
            max_context=self.max_steps(self.max_phonemes),
            prefill_tokens=tuple(sorted({n for n in sizes if n <= self.max_phonemes})),
            state=self.state(),
            pools=(PagePool(POOL, PAGE_FRAMES, lambda rows, steps: steps),),
        )


def codec_state(sizes: CodecSizes) -> dict[str, tuple[int, ...]]:
    """Name and shape of what each layer of the codec remembers."""
    block = (sizes.width, sizes.kernel - 1)
    state: dict[str, tuple[int, ...]] = {}
    state |= {f"slow.{n}": block for n in range(sizes.slow_blocks)}
    state |= {f"fast.{n}": block for n in range(sizes.fast_blocks)}
    return state | {"pieces": (sizes.window, sizes.window // sizes.hop - 1)}
