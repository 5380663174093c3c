"""What the client processes are told, and what they tell of each request."""

from typing import Literal

import msgspec

Outcome = Literal["completed", "refused", "failed", "left"]
"""left: the client went away before the end, as it was told to."""

Transport = Literal["http", "websocket"]


class Order(msgspec.Struct, frozen=True):
    """One request to send.

    due_s: seconds after the window's start. body: the JSON to post, or the fields of the session
    (WebSocket), without the text. frames: the forced length, None where the model decides. keep:
    bring the audio back. leave_s: seconds after sending at which the client goes away, if the
    response is not over by then.
    """

    index: int
    due_s: float
    id: str
    text: str
    body: dict[str, object]
    frames: int | None = None
    keep: bool = False
    leave_s: float | None = None


class Job(msgspec.Struct, frozen=True):
    """One window's share for one client process.

    start_s: CLOCK_MONOTONIC, which all processes of a machine share. in_flight: send the next order
    only while fewer are running (offline runs); None sends each when it is due. sample_rate_hz: of
    the PCM where the response does not name its own. wait_s: after the last order is due.
    frame_s: seconds of audio a frame, to tell a forced length that was cut short. shared: fields of
    every body, so that a clip of some 300 KB is not held for each.
    """

    url: str
    transport: Transport
    headers: dict[str, str]
    orders: list[Order]
    start_s: float
    wait_s: float
    sample_rate_hz: int
    frame_s: float
    in_flight: int | None = None
    keep_arrivals: bool = False
    shared: dict[str, object] = {}


class Record(msgspec.Struct, frozen=True):
    """How one request went. All seconds but `due_s` count from its sending.

    late_s: how much later than due it was sent. ttfa_s: first audio byte, None: there was none.
    stall_s: what a player that starts at the first byte pauses in all; stops: how often. chunks:
    network reads that brought audio. arrivals: (seconds, bytes) of each, when asked for. audio: all
    that they brought, likewise.
    """

    index: int
    id: str
    words: int
    due_s: float
    late_s: float
    outcome: Outcome
    status: int
    error: str
    ttfa_s: float | None
    end_s: float
    audio_s: float
    stall_s: float
    stops: int
    chunks: int
    stub: bool
    arrivals: list[tuple[float, int]] | None = None
    audio: bytes | None = None


class Progress(msgspec.Struct, frozen=True, tag=True):
    """Requests sent so far, and those of them that are over."""

    sent: int
    over: int


class Report(msgspec.Struct, frozen=True, tag=True):
    """The end of a job. cpu_s: processor time that the client process took for it."""

    records: list[Record]
    cpu_s: float


class Share(msgspec.Struct, frozen=True):
    """What one client process did, all windows together. late_p99_s: of its worst window."""

    requests: int
    cpu_s: float
    late_p99_s: float
