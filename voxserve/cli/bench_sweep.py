"""`voxserve bench sweep`: start a server, measure it, then once more for every change."""

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from voxserve.cli import bench_options as shared
from voxserve.cli import options

if TYPE_CHECKING:
    from voxserve.bench.ablations import Variant

Output = Annotated[
    Path, typer.Option("--output", "-o", help="Folder for the report and all results.")
]
Ablations = Annotated[
    list[str] | None,
    typer.Option(
        help="One to measure, or NAME:KEY=VALUE[,KEY=VALUE]. Repeatable.  [default: all, "
        "unless --splits or --batches say what to measure]"
    ),
]
NoAblations = Annotated[
    bool, typer.Option("--no-ablations", help="Measure the configuration alone.")
]
Ladder = Annotated[
    bool,
    typer.Option("--ladder", help="Instead: without any mechanism, then with one more each time."),
]
Splits = Annotated[
    str | None, typer.Option(metavar="SMS,…", help="Also with so many SMs for the codec.")
]
Batches = Annotated[
    str | None, typer.Option(metavar="B,…", help="Also with so many chunks a background batch.")
]
Nears = Annotated[
    str | None,
    typer.Option(
        metavar="RATE[,…]",
        help="Look for each capacity from this guess on, instead of given rates; one for all "
        "servers, or one for each.",
    ),
]
Precision = Annotated[float, typer.Option(help="How close --near comes, as a share.", min=0.01)]
Minutes = Annotated[
    float | None, typer.Option(help="Try no further rate that would end later; for all servers.")
]
Together = Annotated[
    bool, typer.Option("--together", help="Start all servers at once, if memory holds them all.")
]
Gpus = Annotated[
    str | None,
    typer.Option(
        metavar="INDEX,…",
        help="Deal the servers out to these GPUs, as nvidia-smi counts them, and measure side by "
        "side; server and clients of each keep to an equal share of the cores.",
    ),
]
Report = Annotated[
    bool, typer.Option(help="Write report.md and its pictures; `bench report` can do so later.")
]
Start = Annotated[float, typer.Option(help="Seconds a server may take to start.")]
WarmUps = Annotated[int, typer.Option(help="Requests before all, one by one.", min=0)]


def sweep(
    model: options.Model = None,
    output: Output = Path("sweep"),
    rates: shared.Rates = "1,2,4,8",
    near: Nears = None,
    tests: shared.Tests = 6,
    precision: Precision = 0.06,
    goal: Annotated[float, typer.Option(help="Attainment that --near looks for.")] = 0.9,
    minutes: Minutes = None,
    together: Together = False,
    gpus: Gpus = None,
    seeds: shared.Seeds = "1",
    window: shared.WindowSeconds = 60,
    slo_ttfa_ms: shared.SloTtfa = 200,
    ablation: Ablations = None,
    no_ablations: NoAblations = False,
    ladder: Ladder = False,
    splits: Splits = None,
    batches: Batches = None,
    voice: shared.Voice = None,
    language: shared.Language = None,
    param: shared.Params = None,
    ref_audio: shared.RefAudio = None,
    ref_text: shared.RefText = None,
    workload: shared.WorkloadName = "libritts",
    force_length: shared.ForceLength = False,
    frame_hz: shared.FrameHz = 12.5,
    processes: shared.Processes = 1,
    warm_ups: WarmUps = 4,
    burst: shared.Burst = 64,
    wait: shared.Wait = 900,
    start: Start = 1800,
    report: Report = True,
    config: options.ConfigFile = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    load_format: options.LoadFormat = None,
    set_: options.Settings = None,
) -> None:
    """Start a server, sweep the rates, switch its parts off one by one, and write a report."""
    from voxserve.bench import ablation_run, ablations, campaign, pictures, workloads
    from voxserve.bench.load import Load
    from voxserve.bench.places import places
    from voxserve.bench.report import write_report

    guesses = shared.numbers("--near", near) if near else ()
    named_gpus = [part.strip() for part in gpus.split(",")] if gpus else []
    where = places(named_gpus) if named_gpus else []
    cores = len(where[0].cores) if where else None
    load = Load(
        rates=() if near else shared.numbers("--rates", rates),
        near=(guesses[0], tests) if near else None,
        precision=precision,
        goal=goal,
        seeds=shared.seeds(seeds),
        window_s=window,
        processes=campaign.client_processes(processes, cores),
        wait_s=wait,
        warm_ups=warm_ups,
        burst=burst,
        slo_ms=slo_ttfa_ms,
    )
    if ladder:
        variants = ablations.ladder()
    else:
        extra = [*_each("SMs for the codec", "engine.codec_sms", "--splits", splits)]
        extra += _each("background batches of", "policy.background_batch", "--batches", batches)
        every = [] if extra else list(ablations.SWITCHES)
        named = ablations.chosen([] if no_ablations else ablation or every)
        variants = [ablations.Variant(ablations.BASELINE), *named, *extra]
    if len(guesses) > 1:
        if len(guesses) != len(variants):
            options.stop(f"--near names {len(guesses)} guesses for {len(variants)} servers")
        variants = [replace(one, near=at) for one, at in zip(variants, guesses, strict=True)]
    named_options = {
        "--config": config,
        "--device": device,
        "--dtype": dtype,
        "--load-format": load_format,
    }
    fields = (None, voice, language)
    nowhere = "http://127.0.0.1"
    target = shared.target("voxserve", nowhere, "http", fields, param, force_length, frame_hz)
    target = shared.with_clip(target, ref_audio, ref_text)
    texts = workloads.load(workload)
    output.mkdir(parents=True, exist_ok=True)
    if report:
        pictures.check(output / "x.png")
    plan = ablation_run.Plan(
        arguments=_arguments(model, named_options, set_ or []),
        target=target,
        workload=texts,
        load=load,
        variants=variants,
        command=sys.argv[1:],
        start_s=start,
        together=together,
        minutes=minutes,
        places=where,
    )
    outcome = asyncio.run(ablation_run.measure_all(plan, output))
    print(write_report(outcome.results, output, outcome.failures) if report else output)


def _each(words: str, key: str, option: str, values: str | None) -> list["Variant"]:
    """A variant for every value of a comma-separated option."""
    from voxserve.bench.ablations import Variant

    parts = [part.strip() for part in values.split(",")] if values else []
    if not all(part.isdigit() for part in parts):
        options.stop(f"{option} {values} is not a list of whole numbers")
    return [Variant(f"{words}: {part}", (f"{key}={part}",)) for part in parts]


def _arguments(
    model: str | None, named: Mapping[str, object | None], settings: list[str]
) -> list[str]:
    """The command line of the server."""
    pairs = [(name, value) for name, value in named.items() if value is not None]
    pairs += [("--set", setting) for setting in settings]
    return [*([model] if model else []), *(str(part) for pair in pairs for part in pair)]
