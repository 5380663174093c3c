"""Whether speech is as good under load as on an idle server: word errors and a quality score.

The same requests, with the same seeds, are sent one by one and then at the end of a window of load;
a listener hears both.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from voxserve.bench import result
from voxserve.bench.arrivals import orders, poisson
from voxserve.bench.hearing import Heard, Listener, error_rate, opinion
from voxserve.bench.pool import ClientPool
from voxserve.bench.records import Job, Order, Record
from voxserve.bench.statistics import Window, figures
from voxserve.bench.targets import Target
from voxserve.bench.workloads import Workload
from voxserve.errors import InvalidRequestError, UnavailableError

WAIT_S = 300.0
FULL_SCALE = 32_768
Watch = Callable[[str, int, int, int], None]


class Ear(msgspec.Struct, frozen=True):
    """What was heard of one sentence."""

    id: str
    text: str
    heard: str
    error_rate: float
    mos: float


class Speech(msgspec.Struct, frozen=True):
    """One of the two runs. wer: over all sentences together. mos: mean of DNSMOS P.808.

    attainment: of all requests of the run at the TTFA of `slo_ms`; None where they came one by one.
    """

    sentences: int
    wer: float
    worst_wer: float
    mos: float
    worst_mos: float
    attainment: float | None
    ears: list[Ear]


class Quality(msgspec.Struct, frozen=True):
    """same_length: sentences that lasted as long under load; same_audio: that were equal to the
    last bit. stub: the other side was no server."""

    made_at: str
    command: list[str]
    machine: dict[str, Any]
    server: dict[str, Any]
    texts: result.Texts
    rate: float
    window_s: float
    seed: int
    slo_ms: int
    idle: Speech
    loaded: Speech
    same_length: int
    same_audio: int
    stub: bool


async def measure(
    target: Target,
    workload: Workload,
    headers: dict[str, str],
    watch: Watch,
    *,
    rate: float,
    window_s: float,
    sentences: int,
    seed: int,
    slo_ms: int,
    processes: int,
    sample_rate_hz: int,
    command: list[str],
) -> Quality:
    """Raises UnavailableError when a sentence was not spoken, InvalidRequestError when packages of
    the listener are missing or the load is shorter than the sentences."""
    listener = Listener()
    load = orders(workload, target, poisson(rate, window_s, seed), seed)
    if len(load) < sentences:
        raise InvalidRequestError(
            f"{rate:g} requests/s for {window_s:g} s are {len(load)} requests, and {sentences} "
            "sentences are to be heard; ask for a longer window or fewer sentences"
        )
    kept = [msgspec.structs.replace(order, keep=True) for order in load[-sentences:]]
    alone = [msgspec.structs.replace(order, due_s=0.0) for order in kept]
    told = await result.about(target.url, headers)

    async def send(name: str, sent: list[Order], in_flight: int | None) -> list[Record]:
        job = Job(
            url=target.speech_url,
            transport=target.transport,
            headers=headers,
            orders=sent,
            start_s=0.0,
            wait_s=WAIT_S,
            sample_rate_hz=sample_rate_hz,
            frame_s=target.frame_s,
            in_flight=in_flight,
        )
        return await pool.run(job, lambda begun, over: watch(name, begun, over, len(sent)))

    async with ClientPool(processes) as pool:
        idle = await send("idle", alone, 1)
        loaded = await send(f"{rate:g} requests/s", [*load[:-sentences], *kept], None)
    point = figures([Window(rate, seed, window_s, loaded)], slo_ms)
    ends = loaded[-sentences:]
    return Quality(
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        command=command,
        machine=result.machine(),
        server=told,
        texts=result.texts(workload),
        rate=rate,
        window_s=window_s,
        seed=seed,
        slo_ms=slo_ms,
        idle=_listen(listener, kept, idle, None, watch),
        loaded=_listen(listener, kept, ends, point.attainment[slo_ms], watch),
        same_length=sum(a.audio_s == b.audio_s for a, b in zip(idle, ends, strict=True)),
        same_audio=sum(a.audio == b.audio for a, b in zip(idle, ends, strict=True)),
        stub=any(record.stub for record in loaded),
    )


def write(quality: Quality, path: Path) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(quality), indent=1) + b"\n")


def lines(quality: Quality) -> list[str]:
    """What a person reads."""
    if quality.stub:
        return ["Scripted stub, no server: there is nothing to hear"]
    rows = [
        f"{name}: {100 * one.wer:.2f} % of the words wrong (worst sentence "
        f"{100 * one.worst_wer:.0f} %), DNSMOS {one.mos:.2f} (worst {one.worst_mos:.2f})"
        for name, one in (("idle", quality.idle), ("loaded", quality.loaded))
    ]
    share = quality.loaded.attainment or 0.0
    count = quality.idle.sentences
    return [
        f"{count} sentences of {quality.texts.name}, alone and at {quality.rate:g} requests/s "
        f"({100 * share:.1f} % within {quality.slo_ms} ms and without a stall):",
        *rows,
        f"as long as alone: {quality.same_length} of {count}; equal to the last bit: "
        f"{quality.same_audio}",
    ]


def _listen(
    listener: Listener,
    said: Sequence[Order],
    records: Sequence[Record],
    attainment: float | None,
    watch: Watch,
) -> Speech:
    ears: list[Ear] = []
    all_heard: list[Heard] = []
    for order, record in zip(said, records, strict=True):
        watch("listening", len(ears), len(ears), len(said))
        if record.outcome != "completed" or record.audio is None:
            raise UnavailableError(f"{order.id} was not spoken: {record.status} {record.error}")
        audio = np.frombuffer(record.audio, "<i2").astype(np.float32) / np.float32(FULL_SCALE)
        rate_hz = round(len(audio) / record.audio_s)
        heard = listener.hear(audio, rate_hz, order.text)
        all_heard.append(heard)
        mos = opinion(audio, rate_hz)
        ears.append(Ear(order.id, order.text, " ".join(heard.heard), heard.error_rate, mos))
    return Speech(
        sentences=len(ears),
        wer=error_rate(all_heard),
        worst_wer=max(ear.error_rate for ear in ears),
        mos=float(np.mean([ear.mos for ear in ears])),
        worst_mos=min(ear.mos for ear in ears),
        attainment=attainment,
        ears=ears,
    )
