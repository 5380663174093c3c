"""How each kind of server is asked: the same speech, in the words that it understands."""

import base64
import hashlib
import math
import mimetypes
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from voxserve.bench.records import Transport
from voxserve.errors import InvalidRequestError

Kind = Literal["voxserve", "openai", "vllm-omni", "sglang-omni", "nari"]

HTTP_PATH = "/v1/audio/speech"
WEBSOCKET_PATH = "/v1/audio/speech/stream"
SECONDS_A_WORD = 0.417
LEAST_SECONDS = 1.0
LEAST_FRAMES_AT_12_5_HZ = 13

# What makes each stream raw PCM as it is generated, by their own documents. voxserve does so by
# itself; `stream` alone means events with audio in base64 to vLLM-Omni and to some SGLang-Omni.
_STREAMING: dict[Kind, dict[str, object]] = {
    "voxserve": {},
    "openai": {},
    "vllm-omni": {"stream": True, "stream_format": "audio"},
    "sglang-omni": {"stream": True, "stream_format": "audio"},
    "nari": {"stream": True, "non_streaming_mode": False},
}
KINDS = tuple(_STREAMING)


@dataclass(frozen=True, slots=True)
class Clip:
    """A recording that goes with every request, and its words. sha256: of the file's bytes."""

    sha256: str
    uri: str
    text: str | None

    @classmethod
    def read(cls, path: Path, text: str | None) -> "Clip":
        """Raises InvalidRequestError when there is no such file."""
        try:
            content = path.read_bytes()
        except OSError as error:
            raise InvalidRequestError(f"clip {path}: {error.strerror}") from error
        kind = mimetypes.guess_type(path.name)[0] or "audio/wav"
        uri = f"data:{kind};base64,{base64.b64encode(content).decode()}"
        return cls(hashlib.sha256(content).hexdigest(), uri, text)

    @property
    def fields(self) -> dict[str, object]:
        """Of a request's body."""
        words = {} if self.text is None else {"ref_text": self.text}
        return {"ref_audio": self.uri, **words}


@dataclass(frozen=True, slots=True)
class Target:
    """A server under test.

    url: its root, such as http://127.0.0.1:8000. params: further fields of every request.
    buffered: ask for each response in one piece (offline work: no deadline, no refusal).
    clip: whose voice every request asks for; `body` leaves it out, being the same in all.
    force_length: decide each length by the text's words (random weights never stop by themselves).
    """

    kind: Kind
    url: str
    transport: Transport = "http"
    model: str | None = None
    voice: str | None = None
    language: str | None = None
    params: tuple[tuple[str, object], ...] = ()
    force_length: bool = False
    frame_s: float = 0.08
    buffered: bool = False
    clip: Clip | None = None

    def __post_init__(self) -> None:
        if self.kind != "voxserve" and self.transport == "websocket":
            raise InvalidRequestError(f"only voxserve is measured over WebSocket, not {self.kind}")
        if self.kind != "voxserve" and self.force_length:
            raise InvalidRequestError(
                f"how {self.kind} is told a length is not known; name its fields with --param"
            )

    @property
    def speech_url(self) -> str:
        path = HTTP_PATH if self.transport == "http" else WEBSOCKET_PATH
        return self.url.rstrip("/") + path

    def frames(self, text: str) -> int | None:
        """The forced length of a text, or None."""
        return forced_frames(len(text.split()), self.frame_s) if self.force_length else None

    def planned_s(self, text: str) -> float:
        """How long its speech is, or about how long where the model decides."""
        return self.frame_s * forced_frames(len(text.split()), self.frame_s)

    def body(self, text: str, seed: int) -> dict[str, object]:
        """The request for one text; `input` is left out over WebSocket."""
        fields: dict[str, object] = {"input": text} if self.transport == "http" else {}
        named = {"model": self.model, "voice": self.voice, "language": self.language}
        fields |= {name: value for name, value in named.items() if value is not None}
        fields |= {"response_format": "pcm"}
        fields |= {"stream": False} if self.buffered else _STREAMING[self.kind]
        if self.kind == "voxserve":
            fields["seed"] = seed
        frames = self.frames(text)
        if frames is not None:
            fields["extra_params"] = {"ignore_eos": True, "max_frames": frames}
        return fields | dict(self.params)


def forced_frames(words: int, frame_s: float) -> int:
    """Frames that a text of so many words gets: speech at an even pace, one second at least."""
    seconds = max(LEAST_SECONDS, SECONDS_A_WORD * words)
    least = math.ceil(LEAST_FRAMES_AT_12_5_HZ * 0.08 / frame_s - 1e-9)
    return max(least, math.ceil(seconds / frame_s - 1e-9))
