"""`voxserve bench soak`: one long load, and whether the server is afterwards what it was before."""

import asyncio
import sys
from typing import Annotated

import typer

from voxserve.cli import bench_options as shared

Rate = Annotated[float, typer.Option(help="Requests a second; 80 % of the capacity, say.", min=0.1)]
Minutes = Annotated[float, typer.Option(help="How long.", min=0.05)]
Gpu = Annotated[
    str | None,
    typer.Option(
        metavar="INDEX",
        help="Whose memory to watch, as nvidia-smi counts them.  [default: those that the server "
        "sees, if it runs on this machine]",
    ),
]
HostGrowth = Annotated[
    float, typer.Option("--max-growth-mib", help="Of a process, warm to warm.", min=0)
]
GpuGrowth = Annotated[float, typer.Option("--max-gpu-growth-mib", help="Of a GPU.", min=0)]
TtfaGrowth = Annotated[
    float, typer.Option(help="Of TTFA p99, first to last quarter, as a share.", min=0)
]


def soak(
    url: shared.Url = "http://127.0.0.1:8000",
    rate: Rate = 1,
    minutes: Minutes = 8,
    leave: shared.Leave = 0.05,
    seed: Annotated[int, typer.Option(help="Of arrivals, texts and leavers.", min=0)] = 1,
    slo_ttfa_ms: shared.SloTtfa = 200,
    max_growth_mib: HostGrowth = 50,
    max_gpu_growth_mib: GpuGrowth = 50,
    max_ttfa_growth: TtfaGrowth = 0.10,
    gpu: Gpu = None,
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
    burst: shared.Burst = 64,
    wait: shared.Wait = 900,
    label: shared.Label = None,
    json_: shared.Json = None,
) -> None:
    """Load a server for minutes without a pause; exit code 1 when it leaks or gets slower."""
    from voxserve.bench import campaign, workloads
    from voxserve.bench import soak as soaking
    from voxserve.bench.load import Load
    from voxserve.bench.soak_display import show

    aim = shared.target(
        target, url, transport, (model, voice, language), param, force_length, frame_hz
    )
    aim = shared.with_clip(aim, ref_audio, ref_text)
    shared.check_outputs(json_, None)
    load = Load(
        rates=(rate,),
        seeds=(seed,),
        window_s=60 * minutes,
        processes=campaign.client_processes(processes),
        wait_s=wait,
        burst=burst,
        slo_ms=slo_ttfa_ms,
        sample_rate_hz=sample_rate,
        leave=leave,
    )
    found = asyncio.run(
        soaking.measure(
            aim,
            workloads.load(workload, workload_pool_sha256),
            load,
            shared.headers(header),
            rate=rate,
            label=label or target,
            command=sys.argv[1:],
            gpus=gpu,
            limits=soaking.Limits(
                host_mib=max_growth_mib, gpu_mib=max_gpu_growth_mib, ttfa=max_ttfa_growth
            ),
        )
    )
    if json_:
        soaking.write(found, json_)
    show(found)
    if found.problems:
        raise typer.Exit(1)
