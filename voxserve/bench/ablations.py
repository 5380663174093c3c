"""What each part of the policy is worth: the same load, one switch at a time."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from voxserve.bench import campaign, result
from voxserve.bench.load import Load
from voxserve.bench.result import Result
from voxserve.bench.server import running
from voxserve.bench.targets import Target
from voxserve.bench.workloads import Workload
from voxserve.errors import InvalidRequestError

BASELINE = "as configured"
SWITCHES: dict[str, str] = {
    "no urgent lane": "policy.urgent_lane=false",
    "no background lane": "policy.background_lane=false",
    "one launch at a time": "policy.overlap=false",
    "one LM launch in flight": "policy.lm_in_flight=1",
    "prefill first": "policy.admission=prefill-first",
    "nobody refused": "policy.refuse=false",
    "background batches of 1": "policy.background_batch=1",
    "quickest ramp": "policy.ramp=0",
}


def chosen(names: Sequence[str]) -> dict[str, str]:
    """Switches by name; `NAME:KEY=VALUE` adds one of the user's own.

    Raises InvalidRequestError naming the known ones.
    """
    found = {}
    for name in names:
        own, colon, setting = name.partition(":")
        if colon and "=" in setting:
            found[own] = setting
        elif name in SWITCHES:
            found[name] = SWITCHES[name]
        else:
            known = ", ".join(SWITCHES)
            raise InvalidRequestError(f"ablation {name} is neither NAME:KEY=VALUE nor of {known}")
    return found


async def measure_all(
    arguments: Sequence[str],
    target: Target,
    workload: Workload,
    load: Load,
    switches: dict[str, str],
    folder: Path,
    *,
    command: list[str],
    start_s: float,
) -> list[Result]:
    """The baseline, then each switch alone, every one on a server of its own.

    arguments: of `voxserve serve`. target: its URL is filled in. Results are also written into
    `folder` as they come. Raises UnavailableError when a server does not start.
    """
    results = []
    for number, (name, setting) in enumerate({BASELINE: "", **switches}.items()):
        changed = ["--set", setting] if setting else []
        log = folder / f"{number:02}-server.log"
        async with running([*arguments, *changed], log, start_s) as url:
            made = await campaign.measure(
                replace(target, url=url), workload, load, {}, label=name, command=command
            )
        result.write(made, folder / f"{number:02}.json")
        results.append(made)
    return results
