"""A prediction beside the measurement that it was made for."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from voxserve.bench.display import milliseconds, percent
from voxserve.bench.result import Result
from voxserve.bench.statistics import GOALS, capacity, crossing
from voxserve.errors import InvalidRequestError

WITHIN = 0.15


class Pair(msgspec.Struct, frozen=True):
    """Capacity at one attainment, predicted and measured, in requests a second.

    Each is where a line between the tested rates falls through `goal` if both have such a place,
    so that it does not depend on which rates were tested; else the highest rate that met it.
    """

    goal: float
    predicted: float
    measured: float
    interpolated: bool

    @property
    def error(self) -> float:
        """Of the prediction, as a share of what was measured."""
        return self.predicted / self.measured - 1 if self.measured else float("inf")


class Comparison(msgspec.Struct, frozen=True):
    """doubts: why the two may not be comparable. profile: SHA-256 of what was predicted from."""

    predicted_at: str
    measured_at: str
    profile: str
    pairs: list[Pair]
    doubts: list[str]

    def holds(self, within: float = WITHIN) -> bool:
        """Whether the main capacity was predicted to within a share, beforehand, on equal terms."""
        return not self.doubts and abs(self.pairs[0].error) <= within


def compare(predicted: Result, measured: Result) -> Comparison:
    """Raises InvalidRequestError when one of them is not what it is taken for."""
    if predicted.kind != "simulate":
        raise InvalidRequestError(f"{predicted.label} is no prediction, it is {predicted.kind}")
    if measured.kind != "serve":
        raise InvalidRequestError(f"{measured.label} is no measurement, it is {measured.kind}")
    return Comparison(
        predicted_at=predicted.made_at,
        measured_at=measured.made_at,
        profile=str(predicted.server.get("profile", {}).get("sha256", "")),
        pairs=[_pair(predicted, measured, goal) for goal in GOALS],
        doubts=_doubts(predicted, measured),
    )


def write(found: Comparison, path: Path) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")


def lines(found: Comparison, predicted: Result, measured: Result, within: float) -> list[str]:
    """What a person reads."""
    told = [
        f"Predicted {found.predicted_at} from profile {found.profile[:16]}…, "
        f"measured {found.measured_at}"
    ]
    for pair in found.pairs:
        if not pair.measured:
            told.append(
                f"capacity at {percent(pair.goal)}: {pair.predicted:.4g} predicted; "
                "no measured rate met it"
            )
            continue
        how = "line between tested rates" if pair.interpolated else "highest tested rate"
        told.append(
            f"capacity at {percent(pair.goal)}: {pair.predicted:.4g} predicted, "
            f"{pair.measured:.4g} measured, {100 * pair.error:+.1f} % ({how})"
        )
    told += _rates(predicted, measured)
    told += [f"doubt: {doubt}" for doubt in found.doubts]
    verdict = "holds" if found.holds(within) else "does not hold"
    told.append(f"The prediction {verdict}: within {percent(within)} was asked for.")
    return told


def _pair(predicted: Result, measured: Result, goal: float) -> Pair:
    ours, theirs = crossing(predicted.points, goal), crossing(measured.points, goal)
    if ours is not None and theirs is not None:
        return Pair(goal, ours, theirs, interpolated=True)
    rates = capacity(predicted.points, goal).rate, capacity(measured.points, goal).rate
    return Pair(goal, *rates, interpolated=False)


def _doubts(predicted: Result, measured: Result) -> list[str]:
    doubts = []
    if datetime.fromisoformat(predicted.made_at) > datetime.fromisoformat(measured.made_at):
        doubts.append("the prediction was made after the measurement")
    if predicted.texts.sha256 != measured.texts.sha256:
        doubts.append(f"texts: {predicted.texts.name} against {measured.texts.name}")
    ours, theirs = predicted.load["slo_ms"], measured.load["slo_ms"]
    if ours != theirs:
        doubts.append(f"target of {ours} ms against {theirs} ms")
    if predicted.target.get("force_length") != measured.target.get("force_length"):
        doubts.append("lengths are forced in one of them alone")
    if not measured.valid:
        doubts.append("the client of the measurement was late")
    return doubts


def _rates(predicted: Result, measured: Result) -> Sequence[str]:
    """Rates that both have."""
    known = {point.rate: point for point in predicted.points}
    told = []
    for there in measured.points:
        here = known.get(there.rate)
        if here is not None:
            shares = [percent(p.attainment[p.slo_ms]) for p in (here, there)]
            times = [milliseconds(p.ttfa_p50_s) for p in (here, there)]
            told.append(
                f"at {there.rate:g} req/s: {shares[0]} predicted, {shares[1]} measured; "
                f"TTFA p50 {times[0]} and {times[1]} ms"
            )
    return told
