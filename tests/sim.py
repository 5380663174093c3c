"""The scheduler's tests run the package's simulator at fixed costs: those of a published system."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from voxserve.bench.simulator import Heard, Planner, Simulation, Talk
from voxserve.scheduler.launches import Lane, Launch, Stage

__all__ = ["STALL_S", "Costs", "Heard", "Planner", "Simulation", "Talk"]

STALL_S = 0.01
"""A player that waits this long in all has stalled."""


@dataclass(frozen=True)
class Costs:
    """Seconds of each launch when alone, and how lanes slow one another.

    codec_s, urgent_s: a batch of `codec_rows`, `urgent_rows`. by_row: share of that which grows
    with the rows of the batch; at 0 it costs the same however few chunks it holds.
    partition: background batches have SMs of their own; without it they run on all, for
    `whole_codec_s`, against an LM that takes `whole_lm` of its time on the SMs no longer set aside.
    shared_lm, shared_codec: rates of the two while both are busy then. beside_urgent: rate of
    either while an urgent batch runs.
    """

    lm_s: float = 0.008
    lm_row_s: float = 0.00002
    prefill_s: float = 0.004
    encode_s: float = 0.004
    codec_s: float = 0.0062
    codec_rows: int = 16
    urgent_s: float = 0.002
    urgent_rows: int = 8
    by_row: float = 0.0
    partition: bool = True
    whole_codec_s: float = 0.002
    whole_lm: float = 0.96
    shared_lm: float = 0.215
    shared_codec: float = 0.81
    beside_urgent: float = 0.5

    def seconds(self, launch: Launch) -> float:
        if launch.stage is Stage.DECODE:
            seconds = self.lm_s + self.lm_row_s * launch.rows
        elif launch.stage is Stage.PREFILL:
            seconds = self.prefill_s
        elif launch.stage is Stage.ENCODE:
            seconds = self.encode_s
        elif launch.lane is Lane.URGENT:
            return self._batch_s(self.urgent_s, launch.rows / self.urgent_rows)
        else:
            batch_s = self.codec_s if self.partition else self.whole_codec_s
            return self._batch_s(batch_s, launch.rows / self.codec_rows)
        return seconds if self.partition else seconds * self.whole_lm

    def _batch_s(self, batch_s: float, batches: float) -> float:
        return batch_s * ((1 - self.by_row) * math.ceil(batches) + self.by_row * batches)

    def rates(self, busy: Iterable[Lane]) -> dict[Lane, float]:
        rates = dict.fromkeys(busy, 1.0)
        if not self.partition and Lane.LM in rates and Lane.BACKGROUND in rates:
            rates = {Lane.LM: self.shared_lm, Lane.BACKGROUND: self.shared_codec} | {
                lane: 1.0 for lane in rates if lane is Lane.URGENT
            }
        if Lane.URGENT in rates:
            for lane in rates:
                if lane is not Lane.URGENT:
                    rates[lane] *= self.beside_urgent
        return rates
