"""`voxserve bench sweep`: start a server, measure it, then once more for every switch."""

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from voxserve.cli import bench_options as shared
from voxserve.cli import options

Output = Annotated[
    Path, typer.Option("--output", "-o", help="Folder for the report and all results.")
]
Ablations = Annotated[
    list[str] | None,
    typer.Option(help="One to measure, or NAME:KEY=VALUE. Repeatable.  [default: all]"),
]
NoAblations = Annotated[
    bool, typer.Option("--no-ablations", help="Measure the configuration alone.")
]
Start = Annotated[float, typer.Option(help="Seconds a server may take to start.")]


def sweep(
    model: options.Model = None,
    output: Output = Path("sweep"),
    rates: shared.Rates = "1,2,4,8",
    seeds: shared.Seeds = "1",
    window: shared.WindowSeconds = 60,
    slo_ttfa_ms: shared.SloTtfa = 200,
    ablation: Ablations = None,
    no_ablations: NoAblations = False,
    voice: shared.Voice = None,
    language: shared.Language = None,
    param: shared.Params = None,
    workload: shared.WorkloadName = "libritts",
    force_length: shared.ForceLength = False,
    frame_hz: shared.FrameHz = 12.5,
    processes: shared.Processes = 1,
    burst: shared.Burst = 64,
    wait: shared.Wait = 900,
    start: Start = 1800,
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
    named = {"--config": config, "--device": device, "--dtype": dtype, "--load-format": load_format}
    fields = (None, voice, language)
    nowhere = "http://127.0.0.1"
    target = shared.target("voxserve", nowhere, "http", fields, param, force_length, frame_hz)
    texts = workloads.load(workload)
    switches = ablations.chosen(names)
    output.mkdir(parents=True, exist_ok=True)
    results = asyncio.run(
        ablations.measure_all(
            _arguments(model, named, set_ or []),
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


def _arguments(
    model: str | None, named: Mapping[str, object | None], settings: list[str]
) -> list[str]:
    """The command line of the server."""
    pairs = [(name, value) for name, value in named.items() if value is not None]
    pairs += [("--set", setting) for setting in settings]
    return [*([model] if model else []), *(str(part) for pair in pairs for part in pair)]
