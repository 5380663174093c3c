"""`voxserve bench quality`: hear what a server says under load, and what it says when idle."""

import asyncio
import sys
from typing import Annotated

import typer

from voxserve.cli import bench_options as shared


def quality(
    url: shared.Url = "http://127.0.0.1:8000",
    rate: Annotated[float, typer.Option(help="Requests a second of the load.", min=0.01)] = 2,
    sentences: Annotated[int, typer.Option(help="How many are heard.", min=1)] = 40,
    window: shared.WindowSeconds = 60,
    seed: Annotated[int, typer.Option(help="Order of the texts, and of the arrivals.", min=0)] = 1,
    slo_ttfa_ms: shared.SloTtfa = 200,
    target: shared.TargetKind = "voxserve",
    model: shared.Model = None,
    voice: shared.Voice = None,
    language: shared.Language = None,
    param: shared.Params = None,
    header: shared.Headers = None,
    workload: shared.WorkloadName = "libritts",
    workload_pool_sha256: shared.PoolHash = None,
    sample_rate: shared.SampleRate = 24_000,
    processes: shared.Processes = 1,
    json_: shared.Json = None,
) -> None:
    """Speak the same sentences one by one and under load, and have a machine listen to both.

    Needs the extra voxserve[quality], and a model that speaks English.
    """
    from voxserve.bench import campaign, workloads
    from voxserve.bench import quality as bench
    from voxserve.bench.display import Display

    aim = shared.target(target, url, "http", (model, voice, language), param, False, 12.5)
    shared.check_outputs(json_, None)
    texts = workloads.load(workload, workload_pool_sha256)
    with Display() as display:
        made = asyncio.run(
            bench.measure(
                aim,
                texts,
                shared.headers(header),
                display.watch,
                rate=rate,
                window_s=window,
                sentences=sentences,
                seed=seed,
                slo_ms=slo_ttfa_ms,
                processes=campaign.client_processes(processes),
                sample_rate_hz=sample_rate,
                command=sys.argv[1:],
            )
        )
    print(*bench.lines(made), sep="\n")
    if json_:
        bench.write(made, json_)
