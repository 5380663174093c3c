"""`voxserve bench`: measure a server under open-loop load, and compare results."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from voxserve.cli import bench_options as shared
from voxserve.cli import options
from voxserve.cli.bench_compare import compare
from voxserve.cli.bench_quality import quality
from voxserve.cli.bench_report import report
from voxserve.cli.bench_simulate import simulate
from voxserve.cli.bench_soak import soak
from voxserve.cli.bench_sweep import sweep
from voxserve.cli.bench_timeline import timeline

Bisect = Annotated[
    str | None,
    typer.Option(metavar="LOW:HIGH:TESTS", help="Look for the capacity between two rates instead."),
]
Goal = Annotated[float, typer.Option(help="Attainment that --bisect and --near look for.")]
WarmUps = Annotated[int, typer.Option(help="Requests before all, one by one.", min=0)]
Requests = Annotated[
    Path | None, typer.Option(help="Write each request, with every arrival, as JSON lines.")
]

bench = typer.Typer(
    name="bench",
    help="Measure a server under load, predict it, and draw what came out.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
for command in (quality, simulate, compare, sweep, soak, timeline, report):
    bench.command()(command)


@bench.command()
def serve(
    url: shared.Url = "http://127.0.0.1:8000",
    rates: shared.Rates = "1,2,4,8",
    bisect: Bisect = None,
    near: shared.Near = None,
    tests: shared.Tests = 6,
    goal: Goal = 0.9,
    seeds: shared.Seeds = "1",
    window: shared.WindowSeconds = 60,
    slo_ttfa_ms: shared.SloTtfa = 200,
    target: shared.TargetKind = "voxserve",
    transport: shared.TransportKind = "http",
    model: shared.Model = None,
    voice: shared.Voice = None,
    language: shared.Language = None,
    param: shared.Params = None,
    ref_audio: shared.RefAudio = None,
    ref_text: shared.RefText = None,
    header: shared.Headers = None,
    workload: shared.WorkloadName = "libritts",
    workload_pool_sha256: shared.PoolHash = None,
    force_length: shared.ForceLength = False,
    frame_hz: shared.FrameHz = 12.5,
    sample_rate: shared.SampleRate = 24_000,
    processes: shared.Processes = 1,
    warm_ups: WarmUps = 4,
    burst: shared.Burst = 64,
    wait: shared.Wait = 900,
    leave: shared.Leave = 0.0,
    label: shared.Label = None,
    json_: shared.Json = None,
    plot: shared.Picture = None,
    requests: Requests = None,
) -> None:
    """Send requests at given rates, however the server copes, and report who heard what."""
    from voxserve.bench import campaign, workloads
    from voxserve.bench.load import Load

    aim = shared.target(
        target, url, transport, (model, voice, language), param, force_length, frame_hz
    )
    aim = shared.with_clip(aim, ref_audio, ref_text)
    load = Load(
        rates=() if bisect or near else shared.numbers("--rates", rates),
        bisect=_bracket(bisect) if bisect else None,
        near=(near, tests) if near else None,
        goal=goal,
        seeds=shared.seeds(seeds),
        window_s=window,
        processes=campaign.client_processes(processes),
        wait_s=wait,
        warm_ups=warm_ups,
        burst=burst,
        slo_ms=slo_ttfa_ms,
        sample_rate_hz=sample_rate,
        leave=leave,
    )
    texts = workloads.load(workload, workload_pool_sha256)
    shared.check_outputs(json_, plot)
    measured = campaign.measure(
        aim,
        texts,
        load,
        shared.headers(header),
        label=label or target,
        command=sys.argv[1:],
        requests=requests,
    )
    shared.report(asyncio.run(measured), json_, plot)


@bench.command()
def offline(
    url: shared.Url = "http://127.0.0.1:8000",
    requests: Annotated[int, typer.Option(help="How many texts.", min=1)] = 200,
    in_flight: Annotated[int, typer.Option(help="How many of them at any time.", min=1)] = 256,
    target: shared.TargetKind = "voxserve",
    model: shared.Model = None,
    voice: shared.Voice = None,
    language: shared.Language = None,
    param: shared.Params = None,
    ref_audio: shared.RefAudio = None,
    ref_text: shared.RefText = None,
    header: shared.Headers = None,
    workload: shared.WorkloadName = "libritts",
    workload_pool_sha256: shared.PoolHash = None,
    force_length: shared.ForceLength = False,
    frame_hz: shared.FrameHz = 12.5,
    seed: Annotated[int, typer.Option(help="Order of the texts.", min=0)] = 1,
    processes: shared.Processes = 1,
    label: shared.Label = None,
    json_: shared.Json = None,
) -> None:
    """Time a pile of texts sent all at once: how much audio a second a server makes at best."""
    from voxserve.bench import campaign, workloads
    from voxserve.bench.load import Load

    aim = shared.target(
        target, url, "http", (model, voice, language), param, force_length, frame_hz, buffered=True
    )
    aim = shared.with_clip(aim, ref_audio, ref_text)
    shared.check_outputs(json_, None)
    load = Load(rates=(), seeds=(seed,), window_s=0, processes=processes or 1, burst=0)
    made = asyncio.run(
        campaign.measure_offline(
            aim,
            workloads.load(workload, workload_pool_sha256),
            load,
            shared.headers(header),
            label=label or target,
            command=sys.argv[1:],
            requests=requests,
            in_flight=in_flight,
        )
    )
    shared.report(made, json_, None)


@bench.command()
def client(
    rate: Annotated[float, typer.Option(help="Requests a second.", min=0.1)] = 300,
    chunks: Annotated[int, typer.Option(help="Chunks a response, 0.8 s each.", min=2)] = 10,
    window: Annotated[float, typer.Option(help="Seconds to send for.", min=1)] = 20,
    processes: shared.Processes = 0,
    stubs: Annotated[int, typer.Option(help="Processes that answer.", min=1)] = 1,
    json_: shared.Json = None,
) -> None:
    """Try whether this machine can send so many requests in time, against a scripted stub."""
    from voxserve.bench import campaign, workloads
    from voxserve.bench import stub as scripted
    from voxserve.bench.load import Load
    from voxserve.bench.targets import Target

    load = Load(
        rates=(rate,),
        seeds=(1,),
        window_s=window,
        processes=campaign.client_processes(processes),
        burst=0,
    )
    script = scripted.even(first_s=0.05, gap_s=0.4, chunk_s=0.8, chunks=chunks)
    with scripted.stubs(script, stubs) as url:
        made = asyncio.run(
            campaign.measure(
                Target("voxserve", url),
                workloads.load("libritts"),
                load,
                {},
                label="stub",
                command=sys.argv[1:],
            )
        )
    shared.report(made, json_, None)


@bench.command("plot")
def plot_(
    results: Annotated[list[Path], typer.Argument(help="JSON files of `bench serve`.")],
    output: Annotated[Path, typer.Option("--output", "-o")] = Path("bench.png"),
) -> None:
    """Draw several results in one picture."""
    from voxserve.bench.plot import plot
    from voxserve.bench.result import read

    plot([read(path) for path in results], output)


@bench.command("show")
def show_(
    results: Annotated[list[Path], typer.Argument(help="JSON files of `bench serve` or `soak`.")],
) -> None:
    """Print the table of each result again."""
    from voxserve.bench import display, result, soak, soak_display

    for path in results:
        soaked = soak.read(path)
        if soaked:
            soak_display.show(soaked)
        else:
            display.show(result.read(path))


def _bracket(text: str) -> tuple[float, float, int]:
    parts = text.split(":")
    if len(parts) != 3 or not parts[2].isdigit():
        options.stop(f"--bisect {text} is not LOW:HIGH:TESTS")
    low, high = shared.numbers("--bisect", f"{parts[0]},{parts[1]}")
    if low >= high:
        options.stop(f"--bisect {text}: LOW must be below HIGH")
    return low, high, int(parts[2])
