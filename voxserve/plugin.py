"""The plug-in interface: what a model declares, and what the engine calls.

A model package registers a module-level `Plugin` under the entry-point group `voxserve.models`.
It has two halves. The *host* half (`HostLogic`, `LiveText`, `StepLogic`) is plain numpy and never
imports torch: it turns a request into integers in the API process, and reads codes in the engine
process. The *device* half (`SpeechModel`) holds the weights and runs the four stages of fixed
shape on rows named by their slot. The engine knows nothing else about a model.

Words: a *step* is one LM step and yields one row of K codes (step 0 is the prefill's); a *frame*
is what the codec decodes at a time; `ModelSpec.columns` says which codes of which steps make one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from voxserve.requests import Int32Array, Prompt, SpeechRequest

if TYPE_CHECKING:
    import torch

Int8Array = NDArray[np.int8]
Scope = Literal["row", "clip", "page"]
Dim = int | str


class EndReason(IntEnum):
    """Why a request's LM part is over, as `StepLogic.accept` reports it; 0 means it goes on."""

    NONE = 0
    STOP = 1
    LENGTH = 2
    GUARD = 3


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model's files, found but not yet loaded.

    name: the hub id, folder or entry-point name as the user gave it.
    folder: where the files are; None with dummy weights of a published configuration.
    config: the parsed configuration file of the checkpoint (`config.json` or its like).
    dummy: make random weights of the real shapes instead of reading any.
    """

    name: str
    folder: Path | None
    config: Mapping[str, Any]
    dummy: bool = False


@dataclass(frozen=True, slots=True)
class StateTensor:
    """One tensor of per-request state.

    scope `row`: allocated as [slots + 1, *shape], one row a request, the last row for padding.
    scope `clip`: [clips + 1, *shape], one row a reference clip; `encode` fills, prefill reads it.
    scope `page`: [pages + 1, *shape] of the pool `pool`, the last page for padding.
    dtype: a torch dtype name, or "model" for the dtype that the weights run in.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "model"
    scope: Scope = "row"
    pool: str | None = None


@dataclass(frozen=True, slots=True)
class PagePool:
    """A pool of pages of `units` positions each (tokens of the LM, frames of a codec).

    need: (prompt rows, max steps) -> positions that one request may come to hold. The engine
    reserves pages for all of them before it admits the request, so that it never dies of memory.
    clip_need: samples of a reference clip -> positions that the clip itself holds, full pages only;
    None where clips hold none. `encode` fills these pages. Every request with the clip has them at
    the front of its page table, before its own, and nobody writes into them again.
    """

    name: str
    units: int
    need: Callable[[int, int], int]
    clip_need: Callable[[int], int] | None = None


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """The shapes and rates of a model. Everything the scheduler and the engine size things by.

    codebooks: K, codes a step. columns: per code column of a frame, (step offset, codebook): plain
    codebooks are (0, 0) … (0, K-1), a delay pattern (0, 0), (1, 1), …, seven codes a frame in a
    flat stream (0, 0), (1, 0), … (6, 0).
    frame_buckets: the frame counts that the codec is built for; every chunk size but the last one
    of a request is one of them. ramps: the chunk plans, least patient first; sizes are taken in
    order and the last one repeats. padded_chunks: any chunk, not only a last one, may have fewer
    frames than its bucket, so the ramps need not name buckets. left_frames, ahead_frames: context
    frames of a stateless codec before and behind a chunk.
    lm_rows: rows of LM state a request takes (2 with classifier-free guidance).
    sampling: names of the columns of `Prompt.sampling`, the first five always
    temperature, top_k, top_p, repetition_penalty, min_steps.
    pad_row: [inject_columns] what a decode step reads once the text is used up.
    """

    sample_rate_hz: int
    samples_per_frame: int
    codebooks: int
    columns: tuple[tuple[int, int], ...]
    frame_buckets: tuple[int, ...]
    ramps: tuple[tuple[int, ...], ...]
    prompt_columns: int
    inject_columns: int
    pad_row: tuple[int, ...]
    max_context: int
    prefill_tokens: tuple[int, ...]
    state: tuple[StateTensor, ...]
    pools: tuple[PagePool, ...] = ()
    sampling: tuple[str, ...] = (
        "temperature",
        "top_k",
        "top_p",
        "repetition_penalty",
        "min_steps",
    )
    padded_chunks: bool = False
    left_frames: int = 0
    ahead_frames: int = 0
    lm_rows: int = 1
    clip_rate_hz: int | None = None
    encode_seconds: tuple[int, ...] = ()

    @property
    def frame_s(self) -> float:
        """Seconds of audio in one frame."""
        return self.samples_per_frame / self.sample_rate_hz


@dataclass(frozen=True, slots=True)
class Voice:
    name: str
    description: str = ""
    languages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Range:
    """Inclusive limits of a sampling parameter and the model's default."""

    low: float
    high: float
    default: float


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What `/v1/models` tells, and what requests are checked against.

    ranges: accepted sampling fields (temperature, top_p, top_k, repetition_penalty); a field that
    is absent here is refused. extra: JSON schema of `extra_params`. tasks: accepted `task_type`s.
    normalises: the host writes out numbers, dates and the like whatever the request says.
    """

    name: str
    voices: tuple[Voice, ...]
    default_voice: str | None
    languages: tuple[str, ...]
    ranges: Mapping[str, Range]
    tasks: tuple[str, ...] = ()
    text_streaming: bool = False
    cloning: bool = False
    instructions: bool = False
    normalises: bool = False
    max_input_chars: int = 16_384
    extra: Mapping[str, Any] = field(default_factory=dict)
    licence: str = ""
    notice: str = ""
    watermark: str | None = None


@dataclass(frozen=True, slots=True)
class Accepted:
    """What the host made of one step's codes, for B rows.

    frames: [B] int32, frames decodable so far, look-ahead not subtracted.
    ended: [B] int8, an `EndReason` each. The step of a STOP or GUARD is not a frame.
    """

    frames: Int32Array
    ended: Int8Array


class StepLogic(Protocol):
    """Reads the codes of running requests in the engine process; arrays indexed by slot.

    Called once a step for all its rows, so it works on whole arrays. `voxserve.steps.EosSteps`
    serves models whose step is a frame and whose end is one code.
    """

    def admit(self, slot: int, prompt: Prompt) -> None:
        """Start a request in `slot`; forget whatever was there."""

    def accept(self, slots: Int32Array, steps: Int32Array, codes: Int32Array) -> Accepted:
        """Take in the codes [B, K] that `slots` [B] computed as their LM steps `steps` [B]."""

    def chunk_steps(self, slot: int, first: int, count: int) -> Int32Array:
        """LM steps of the frames [first, first + count): [count] int32, -1 where there is none.

        `first` may be negative and the range may pass the end, for context frames.
        """

    def chunk_samples(self, first: int, frames: int, last: bool) -> int:
        """Samples that the codec emits for a chunk (left_frames and ahead_frames not counted)."""


class LiveText(Protocol):
    """The text of one request that arrives in pieces, cut anywhere (inside a word or grapheme)."""

    def append(self, text: str) -> Int32Array:
        """Rows [n, inject_columns] int32 that later text can no longer change; n may be 0."""

    def end(self) -> Int32Array:
        """The rest, held-back text included, and the end mark."""

    def prompt(self, rows: Int32Array, ended: bool) -> Prompt:
        """The prompt, once the first rows are there; rows it does not use go into `inject`."""


class HostLogic(Protocol):
    """Everything a model does with integers and text. No torch."""

    info: ModelInfo
    spec: ModelSpec

    def prompt(self, request: SpeechRequest) -> Prompt:
        """Check the request against the model and tokenise it.

        Raises InvalidRequestError naming the field, the value and the limit.
        """

    def live_text(self, request: SpeechRequest) -> LiveText:
        """The same for text that is still to come (`request.text` is empty).

        Raises InvalidRequestError when `info.text_streaming` is false.
        """

    def steps(self, slots: int) -> StepLogic:
        """A fresh step logic for that many slots (the engine process calls it once)."""


Inputs = Mapping[str, "torch.Tensor"]
State = Mapping[str, "torch.Tensor"]
Outputs = Mapping[str, "torch.Tensor"]


class SpeechModel(Protocol):
    """The weights, and the stages as functions of fixed shape: no host read, no data-dependent
    shape, so that each can be captured as a graph. `state` maps each StateTensor's name to its
    tensor, updated in place at the rows named by `slots`; padding rows name the spare row.

    prefill   in: slots [B] i64, lengths [B] i64, rows [B, T, prompt_columns] i64, sampling [B, S]
              f32, seeds [B] i64, ignore_eos [B] bool, clips [B] i64, and pages_NAME [B, P] i64
              for each pool (the clip's pages, then the request's own; P = most that these can
              be; unused entries behind them name the spare page).
              Starts its rows afresh, whatever they held. out: codes [B, K] of step 0.
    decode    in: slots [B] i64, steps [B] i64 (the step being computed), inject
              [B, inject_columns] i64. Reads the last codes from its own row state.
              out: codes [B, K].
    codec     in: slots [B] i64, codes [B, L, N] i64 with L = left + frames + ahead and N =
              len(columns), valid [B, L] bool, lengths [B] i64 (frames of the chunk proper),
              first_frame [B] i64, fresh [B] bool (treat the row's state as zero), last [B] bool.
              out: audio [B, S] f32 in [-1, 1]; S is what the model likes, at least the most that
              `StepLogic.chunk_samples` says of such a chunk.
    encode    in: clips [B] i64, audio [B, seconds * clip_rate_hz] f32, lengths [B] i64 samples, and
              pages_NAME [B, P] i64 for each pool of which clips hold pages.
              Fills the `clip` state and those pages. out: nothing.

    A model may also have `row_invariant: bool`, see `row_invariant`.
    """

    def prefill(self, io: Inputs, state: State) -> Outputs: ...

    def decode(self, io: Inputs, state: State) -> Outputs: ...

    def codec(self, io: Inputs, state: State) -> Outputs: ...

    def encode(self, io: Inputs, state: State) -> Outputs: ...


def row_invariant(model: SpeechModel) -> bool:
    """Whether on a GPU, with `voxserve.kernels.tiles.fixed_tiles` around the capture, a row's
    results have the same bits whatever else is in its batch, in any bucket and on any partition.

    Models say so by an attribute of this name; without one it is False, and the engine refuses
    `engine.deterministic` on a GPU. On a CPU rows are run one by one, which needs nothing of them.
    """
    return bool(getattr(model, "row_invariant", False))


@dataclass(frozen=True, slots=True)
class Target:
    """What a model's device half is loaded for.

    device, dtype: torch names. lm_kernels, codec_kernels: which implementation the stages use where
    the model has more than one; a model takes the nearest that it has. `fused` means kernels of
    `voxserve.kernels`, for CUDA alone.
    """

    device: str
    dtype: str
    lm_kernels: Literal["reference", "fused"] = "reference"
    codec_kernels: Literal["eager", "fused"] = "eager"


@dataclass(frozen=True, slots=True)
class Plugin:
    """One entry of `voxserve.models`. Both functions import lazily.

    host: checkpoint -> HostLogic, without torch.
    load: (checkpoint, target) -> SpeechModel, in the engine process.
    recognises: whether a checkpoint's configuration is of this model.
    published: configurations of known hub ids, for dummy weights without a download.
    bundled: folder inside the package that holds the checkpoint served under the entry point's own
    name, None where there is none. bundled_dummy: that folder holds no weights by intention.
    config_names: the file that holds the configuration, JSON or YAML, by order of preference.
    files: patterns of the files that a checkpoint of a hub id needs.
    """

    host: Callable[[Checkpoint], HostLogic]
    load: Callable[[Checkpoint, Target], SpeechModel]
    recognises: Callable[[Mapping[str, Any]], bool]
    published: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    bundled: Path | None = None
    bundled_dummy: bool = False
    config_names: Sequence[str] = ("config.json",)
    files: Sequence[str] = ("*.json", "*.txt", "*.safetensors", "*.pt", "*.model", "*.yaml")
