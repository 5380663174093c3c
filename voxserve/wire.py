"""The messages between the API process and an engine process, and their bytes.

One local stream socket carries frames: a 4-byte little-endian length, then a msgpack array. Every
message is a frozen msgspec struct with a short tag; numpy arrays travel as raw bytes.
"""

import struct
from collections.abc import Mapping
from typing import Literal

import msgspec
import numpy as np

from voxserve.requests import Float32Array, Int32Array, Prompt, ReferenceClip

MAX_FRAME_BYTES = 64 * 2**20
_LENGTH = struct.Struct("<I")


class _Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    pass


class Submit(_Message, frozen=True):
    """Start a request. `request` is unique for the life of the engine.

    ttfa_s: seconds from `arrival_s` to the first chunk's deadline; None: no deadline at all
    (buffered and offline requests). arrival_s: CLOCK_MONOTONIC, one clock for both processes.
    speed: output seconds are audio seconds / speed. max_ahead_s: seconds of audio that may be made
    ahead of real-time playback. window_s: seconds that may be made ahead of what the client's
    socket has taken (`Progress`). chunk_frames: the first chunk's size as a hint.
    """

    request: int
    arrival_s: float
    prompt: "WirePrompt"
    ttfa_s: float | None
    speed: float = 1.0
    max_ahead_s: float | None = None
    window_s: float = 30.0
    chunk_frames: int | None = None


class WirePrompt(msgspec.Struct, frozen=True, array_like=True):
    """`requests.Prompt` with its arrays as bytes (int32 or float32, C order) and column counts.

    clip_key: of a clip that the engine holds by a `KeepClip`.
    """

    rows: bytes
    row_columns: int
    inject: bytes
    inject_columns: int
    text_open: bool
    max_steps: int
    sampling: bytes
    seed: int
    input_tokens: int
    ignore_eos: bool
    clip_key: str | None
    clip_text: str | None


class KeepClip(_Message, frozen=True):
    """Hold the audio (float32 bytes) of a reference clip for prompts that name its key.

    What is held, and for how long, is the API process's decision alone.
    """

    key: str
    audio: bytes


class ForgetClip(_Message, frozen=True):
    """No prompt to come names this clip, unless it is sent anew."""

    key: str


class AppendText(_Message, frozen=True):
    """More injected rows, int32 bytes; `ended`: they are the last."""

    request: int
    rows: bytes
    ended: bool = False


class Cancel(_Message, frozen=True):
    request: int


class Progress(_Message, frozen=True):
    """The client's socket has taken this many seconds of audio of the request."""

    request: int
    taken_s: float


class Playback(_Message, frozen=True):
    """The client says how many seconds of audio it has played (replaces the estimate)."""

    request: int
    played_s: float


class Drain(_Message, frozen=True):
    """Finish what runs, then exit with code 0."""


class Warming(_Message, frozen=True):
    """Progress of loading and warm-up, for the terminal and `/health`."""

    what: str
    done: int
    total: int


class Ready(_Message, frozen=True):
    """The engine takes requests. slots: running requests at most."""

    slots: int
    pid: int


class Started(_Message, frozen=True):
    """The request left the queue. queue_s: seconds from arrival to its prefill's launch.

    deferred_s: of them, how long the prefill could have run and was held back.
    """

    request: int
    queue_s: float
    deferred_s: float = 0.0


class PcmChunk(_Message, frozen=True):
    """Audio of one chunk: signed 16-bit little-endian mono PCM at the model's native rate."""

    request: int
    index: int
    pcm: bytes
    last: bool


class Finished(_Message, frozen=True):
    """The request is complete; nothing follows. Sent after its last PcmChunk."""

    request: int
    reason: Literal["stop", "length", "guard"]
    frames: int
    steps: int


class Cancelled(_Message, frozen=True):
    """Answer to Cancel: no chunk of the request follows. generated_s: audio made so far."""

    request: int
    generated_s: float


class Failed(_Message, frozen=True):
    """The request is over with an error; nothing follows."""

    request: int
    status: int
    code: str
    message: str
    retry_after_s: float | None = None


class Stats(_Message, frozen=True):
    """Gauges and counters, about once a second; also the heartbeat.

    lane_busy: share of the last period that each lane was busy, by lane name. pages: (free, total)
    by pool. dispatches: codec launches so far by "lane/reason", codec_rows: by "lane/rows", the
    chunks decoded together. step_age_s: age of the oldest launch in flight.
    """

    slots_free: int
    slots_total: int
    waiting: int
    pages: dict[str, tuple[int, int]]
    lane_busy: dict[str, float]
    dispatches: dict[str, int]
    codec_rows: dict[str, int]
    prefills: int
    step_age_s: float
    loop_s: float


ToEngine = KeepClip | ForgetClip | Submit | AppendText | Cancel | Progress | Playback | Drain
FromEngine = Warming | Ready | Started | PcmChunk | Finished | Cancelled | Failed | Stats

_encoder = msgspec.msgpack.Encoder()
_to_engine = msgspec.msgpack.Decoder(ToEngine)
_from_engine = msgspec.msgpack.Decoder(FromEngine)


def encode(message: ToEngine | FromEngine) -> bytes:
    """A whole frame, length included."""
    return b"".join(encode_parts(message))


def encode_parts(message: ToEngine | FromEngine) -> tuple[bytes, bytes]:
    """The same as length and body, for a writer that need not join them."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)), body


def decode_to_engine(body: bytes | memoryview) -> ToEngine:
    return _to_engine.decode(body)


def decode_from_engine(body: bytes | memoryview) -> FromEngine:
    return _from_engine.decode(body)


class Frames:
    """Cuts a byte stream into frame bodies. Pure: feed bytes in, take whole bodies out."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes | memoryview) -> list[bytes]:
        """Bodies completed by `data`. Raises ValueError on a length above MAX_FRAME_BYTES."""
        self._buffer += data
        bodies = []
        start = 0
        while len(self._buffer) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer, start)
            if length > MAX_FRAME_BYTES:
                raise ValueError(f"frame has {length} bytes, at most {MAX_FRAME_BYTES}")
            end = start + _LENGTH.size + length
            if len(self._buffer) < end:
                break
            bodies.append(bytes(self._buffer[start + _LENGTH.size : end]))
            start = end
        del self._buffer[:start]
        return bodies


def pack_prompt(prompt: Prompt) -> WirePrompt:
    clip = prompt.clip
    return WirePrompt(
        rows=prompt.rows.astype("<i4", copy=False).tobytes(),
        row_columns=prompt.rows.shape[1],
        inject=prompt.inject.astype("<i4", copy=False).tobytes(),
        inject_columns=prompt.inject.shape[1],
        text_open=prompt.text_open,
        max_steps=prompt.max_steps,
        sampling=prompt.sampling.astype("<f4", copy=False).tobytes(),
        seed=prompt.seed,
        input_tokens=prompt.input_tokens,
        ignore_eos=prompt.ignore_eos,
        clip_key=clip.key if clip else None,
        clip_text=clip.text if clip else None,
    )


def unpack_prompt(packed: WirePrompt, clips: Mapping[str, Float32Array]) -> Prompt:
    """clips: the audio of those that are held, by key."""
    clip = None
    if packed.clip_key is not None:
        clip = ReferenceClip(packed.clip_key, clips[packed.clip_key], packed.clip_text)
    return Prompt(
        rows=unpack_rows(packed.rows, packed.row_columns),
        inject=unpack_rows(packed.inject, packed.inject_columns),
        text_open=packed.text_open,
        max_steps=packed.max_steps,
        sampling=_floats(packed.sampling),
        seed=packed.seed,
        input_tokens=packed.input_tokens,
        ignore_eos=packed.ignore_eos,
        clip=clip,
    )


def pack_clip(clip: ReferenceClip) -> KeepClip:
    return KeepClip(clip.key, clip.audio.astype("<f4", copy=False).tobytes())


def unpack_clip(packed: KeepClip) -> Float32Array:
    return _floats(packed.audio)


def unpack_rows(data: bytes, columns: int) -> Int32Array:
    return np.frombuffer(data, dtype="<i4").reshape(-1, columns)


def _floats(data: bytes) -> Float32Array:
    return np.frombuffer(data, dtype="<f4")
