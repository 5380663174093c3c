"""How long the stages of the paced model take, whatever they are given."""

import os

PREFILL_S, CODEC_S = 0.004, 0.002

STEP = "PACED_STEP_S"
STEP_S = 0.02
"""Unless the environment says otherwise. A frame has 80 ms, so this is four times real time."""


def step_s() -> float:
    return float(os.environ.get(STEP, STEP_S))
