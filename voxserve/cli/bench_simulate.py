"""`voxserve bench simulate`: predict attainment from a profile, without the model or its device."""

import hashlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from voxserve.cli import bench_options as shared
from voxserve.cli import options

if TYPE_CHECKING:
    from voxserve.bench.profile_file import Profile
    from voxserve.bench.simulate import Supposed


def simulate(
    profile: Annotated[Path, typer.Argument(help="File of `voxserve profile`.")],
    rates: shared.Rates = "1,2,4,8",
    seeds: shared.Seeds = "1",
    window: shared.WindowSeconds = 60,
    slo_ttfa_ms: shared.SloTtfa = 200,
    workload: shared.WorkloadName = "libritts",
    workload_pool_sha256: shared.PoolHash = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="What if: a setting of the policy. Repeatable."
        ),
    ] = None,
    slots: Annotated[int | None, typer.Option(help="What if: requests at once.", min=1)] = None,
    engines: Annotated[int, typer.Option(help="What if: so many equal engines.", min=1)] = 1,
    codec_sms: Annotated[
        int | None, typer.Option(help="What if: another of the profile's splits.", min=0)
    ] = None,
    near: shared.Near = None,
    tests: shared.Tests = 12,
    goal: Annotated[float, typer.Option(help="Attainment that --near looks for.")] = 0.9,
    gap_ms: Annotated[
        float | None,
        typer.Option(help="Of the host, between two launches.  [default: the profile's]", min=0),
    ] = None,
    http_ms: Annotated[
        float, typer.Option(help="Outside of the engine, added to every TTFA.", min=0)
    ] = 0.0,
    label: shared.Label = None,
    json_: shared.Json = None,
    plot: shared.Picture = None,
) -> None:
    """Predict a measurement: the real scheduler, on a profile's times and a virtual clock."""
    from voxserve.bench import profile_file, workloads
    from voxserve.bench.load import Load
    from voxserve.bench.result import result
    from voxserve.bench.simulate import Supposed, predict
    from voxserve.bench.targets import Target

    shared.check_outputs(json_, plot)
    known = profile_file.read(profile)
    load = Load(
        rates=() if near else shared.numbers("--rates", rates),
        near=(near, tests) if near else None,
        goal=goal,
        seeds=shared.seeds(seeds),
        window_s=window,
        processes=0,
        warm_ups=0,
        burst=0,
        slo_ms=slo_ttfa_ms,
    )
    texts = workloads.load(workload, workload_pool_sha256)
    gap_s = None if gap_ms is None else gap_ms / 1000
    supposed = Supposed(_policy(set_), slots, engines, http_ms / 1000, codec_sms, gap_s)
    points, windows = predict(known, texts, load, supposed)
    frame_s = float(known.shape["frame_s"])
    made = result(
        "simulate",
        label or known.model,
        Target("voxserve", "", force_length=True, frame_s=frame_s),
        texts,
        load,
        points,
        windows,
        command=sys.argv[1:],
        server=_source(profile, supposed.of(known), supposed),
        metrics={},
    )
    shared.report(made, json_, plot)


def _source(file: Path, profile: "Profile", supposed: "Supposed") -> dict[str, Any]:
    """What stands in the place of what a server tells of itself."""
    return {
        "profile": {
            "file": file.name,
            "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
            "model": profile.model,
            "made_at": profile.made_at,
            "device": profile.device,
            "machine": profile.machine,
        },
        "policy": supposed.policy,
        "codec_sms": profile.codec_sms,
        "gap_s": profile.gap_s,
        "slots": supposed.slots or profile.shape["slots"],
        "engines": supposed.engines,
        "http_s": supposed.http_s,
    }


def _policy(settings: list[str] | None) -> dict[str, Any]:
    """The fields of the policy that are supposed otherwise, checked."""
    given = [s if s.startswith("policy.") else f"policy.{s}" for s in settings or []]
    changed = options.configure(None, given, {}).policy
    names = {setting.partition("=")[0].removeprefix("policy.") for setting in given}
    fields: dict[str, Any] = changed.model_dump(include=names)
    return fields
