"""`voxserve bench sweep`: start a server, measure it, then once more for every switch."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from voxserve.cli import bench_options as shared
from voxserve.cli import options


def sweep(
    model: options.Model = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the report and all results.")
    ] = Path("sweep"),
    rates: shared.Rates = "1,2,4,8",
    seeds: shared.Seeds = "1",
    window: shared.WindowSeconds = 60,
    slo_ttfa_ms: shared.SloTtfa = 200,
    ablation: Annotated[
        list[str] | None,
        typer.Option(help="One to measure, or NAME:KEY=VALUE. Repeatable.  [default: all]"),
    ] = None,
    no_ablations: Annotated[
        bool, typer.Option("--no-ablations", help="Measure the configuration alone.")
    ] = False,
    voice: shared.Voice = None,
    language: shared.Language = None,
    param: shared.Params = None,
    workload: shared.WorkloadName = "libritts",
    force_length: shared.ForceLength = False,
    frame_hz: shared.FrameHz = 12.5,
    processes: shared.Processes = 1,
    burst: Annotated[int, typer.Option(help="Requests at once before each sweep.", min=0)] = 64,
    wait: Annotated[float, typer.Option(help="Seconds to wait for the last ones.", min=1)] = 900,
    start: Annotated[float, typer.Option(help="Seconds a server may take to start.")] = 1800,
    config: options.ConfigFile = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    load_format: options.LoadFormat = None,
    set_: options.Settings = None,
) -> None:
    """Start a server, sweep the rates, switch its parts off one by one, and write a report."""
    from voxserve.bench import ablations, campaign, workloads
    from voxserve.bench.load import Load
    from voxserve.bench.report import write_report

    load = Load(
        rates=shared.numbers("--rates", rates),
        seeds=shared.seeds(seeds),
        window_s=window,
        processes=campaign.client_processes(processes),
        wait_s=wait,
        burst=burst,
        slo_ms=slo_ttfa_ms,
    )
    names = [] if no_ablations else ablation or list(ablations.SWITCHES)
    given: list[tuple[str, object]] = [
        ("--config", config),
        ("--device", device),
        ("--dtype", dtype),
        ("--load-format", load_format),
        *(("--set", setting) for setting in set_ or []),
    ]
    arguments = [model] if model else []
    arguments += [str(part) for pair in given if pair[1] is not None for part in pair]
    fields = (None, voice, language)
    nowhere = "http://127.0.0.1"
    target = shared.target("voxserve", nowhere, "http", fields, param, force_length, frame_hz)
    texts = workloads.load(workload)
    switches = ablations.chosen(names)
    output.mkdir(parents=True, exist_ok=True)
    results = asyncio.run(
        ablations.measure_all(
            arguments,
            target,
            texts,
            load,
            switches,
            output,
            command=sys.argv[1:],
            start_s=start,
        )
    )
    print(write_report(results, output))
