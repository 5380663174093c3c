"""Servers that differ in a few settings, each of which switches a mechanism off."""

from collections.abc import Sequence
from dataclasses import dataclass

from voxserve.errors import InvalidRequestError

BASELINE = "as configured"


@dataclass(frozen=True, slots=True)
class Variant:
    """One server. settings: KEY=VALUE each. near: where the search for its capacity begins; None
    takes what the one before came to, times `factor`."""

    name: str
    settings: tuple[str, ...] = ()
    factor: float = 1.0
    near: float | None = None


SWITCHES: dict[str, tuple[str, ...]] = {
    "no urgent lane": ("policy.urgent_lane=false",),
    "no background lane": ("policy.background_lane=false",),
    "no partition": ("engine.codec_sms=0",),
    "one launch at a time": ("policy.overlap=false",),
    "one LM launch in flight": ("policy.lm_in_flight=1",),
    "prefill first": ("policy.admission=prefill-first",),
    "nobody refused": ("policy.refuse=false",),
    "background batches of 1": ("policy.background_batch=1",),
    "quickest ramp": ("policy.ramp=0",),
}
# Each mechanism, what a server without it is told, and how much is expected of it. Rungs are
# climbed from the bottom: the last one is the server as configured.
MECHANISMS: tuple[tuple[str, tuple[str, ...], float], ...] = (
    ("synchronous loop", (), 1.0),
    ("second codec stream", ("policy.overlap=false",), 1.1),
    (
        "asynchronous lanes, slack batching",
        ("policy.lm_in_flight=1", "policy.background_batch=1"),
        1.2,
    ),
    ("fused codec", ("engine.codec_kernels=eager",), 1.3),
    ("fused LM kernels", ("engine.lm_kernels=reference",), 8.0),
    ("partition with urgent lane", ("engine.codec_sms=0", "policy.urgent_lane=false"), 1.2),
    ("deadline admission", ("policy.admission=prefill-first", "policy.refuse=false"), 1.1),
)


def ladder() -> list[Variant]:
    """The server without any of the mechanisms, then with one more at each rung."""
    rungs = []
    for number, (name, _, factor) in enumerate(MECHANISMS):
        missing = tuple(key for _, off, _ in MECHANISMS[number + 1 :] for key in off)
        rungs.append(Variant(name, missing, factor))
    return rungs


def chosen(names: Sequence[str]) -> list[Variant]:
    """Switches by name; `NAME:KEY=VALUE[,KEY=VALUE]` adds one of the user's own.

    Raises InvalidRequestError naming the known ones.
    """
    found = []
    for name in names:
        own, colon, settings = name.partition(":")
        if colon and "=" in settings:
            found.append(Variant(own, tuple(settings.split(","))))
        elif name in SWITCHES:
            found.append(Variant(name, SWITCHES[name]))
        else:
            known = ", ".join(SWITCHES)
            raise InvalidRequestError(f"ablation {name} is neither NAME:KEY=VALUE nor of {known}")
    return found
