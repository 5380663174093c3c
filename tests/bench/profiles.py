"""Profiles with round costs, written out by a rule."""

import msgspec

from voxserve.bench.profile_file import SCHEMA, Profile, Sharing, Split, Timing
from voxserve.bench.splits import choose
from voxserve.config import PolicyConfig

ROWS = (1, 2, 4, 8, 16, 32)
FRAMES = (1, 2, 4, 10)
STEP_S = 0.02
SMS = 132
FRAMES_A_REQUEST = 100.0


def round_profile() -> Profile:
    """Steps of 20 ms, prefills of 10, 2 ms of codec a chunk, on a device without partitions."""
    timings = [Timing("LM", "DECODE", rows, 0, STEP_S, STEP_S, {}, 9) for rows in ROWS]
    timings += [Timing("LM", "PREFILL", rows, 32, 0.01, 0.01, {}, 9) for rows in (1, 2, 4, 8)]
    for lane in ("URGENT", "BACKGROUND"):
        timings += [
            Timing(lane, "CODEC", rows, frames, 0.002 * rows, 0.002 * rows, {}, 9)
            for rows in (1, 2, 4, 8, 16)
            for frames in FRAMES
        ]
    made = Profile(
        schema=SCHEMA,
        model="round",
        made_at="",
        config={"engine": {"codec_sms": 0}, "policy": PolicyConfig().model_dump()},
        machine={},
        device="none",
        dtype="none",
        sms={},
        shape={
            "slots": 32,
            "pages": [100],
            "frame_s": 0.08,
            "sample_rate_hz": 24_000,
            "frame_buckets": FRAMES,
            "ramps": [(1, 2, 4, 10), (4, 10), (10,)],
            "ahead_frames": 0,
            "prefill_tokens": [32],
            "decode_rows": ROWS,
            "prefill_rows": [1, 2, 4, 8],
            "codec_rows": [1, 2, 4, 8, 16],
        },
        samples_per_frame=1920,
        prompt_rows=10,
        gap_s=0.001,
        timings=timings,
        sharing=[Sharing("LM", ["BACKGROUND"], 0.8), Sharing("LM", ["URGENT"], 0.5)],
    )
    return _again(made)


def split(codec_sms: int, lm_loss: float = 1.0, starved: float = 1.0) -> Split:
    """LM steps of 6 ms at any rows, codec batches of 2 ms, in proportion to the SMs each has.

    lm_loss: how much slower steps are beside the codec; starved: on shared SMs, both.
    """
    lm, codec = (SMS - codec_sms, codec_sms) if codec_sms else (SMS, SMS)
    timings = []
    for rows in (1, 64, 128):
        alone_s = 0.006 * SMS / lm
        beside_s = alone_s * (lm_loss if codec_sms else starved)
        timings.append(
            Timing("LM", "DECODE", rows, 0, alone_s, alone_s, {"BACKGROUND": beside_s}, 9)
        )
    for rows in (1, 16):
        alone_s = 0.002 * rows / 16 * SMS / codec
        beside_s = alone_s * (1.0 if codec_sms else starved)
        timings.append(
            Timing("BACKGROUND", "CODEC", rows, 10, alone_s, alone_s, {"LM": beside_s}, 9)
        )
    if not codec_sms:
        timings.append(Timing("LM", "PREFILL", 8, 32, 0.004, 0.004, {"BACKGROUND": 0.005}, 9))
    return Split(codec_sms, {"whole": SMS, "lm": lm, "codec": codec}, timings)


def split_profile() -> Profile:
    """The round profile with splits of its device, and the choice among them."""
    made = round_profile()
    splits = [split(0, starved=5.0), *(split(sms, lm_loss=1.04) for sms in (16, 24, 32, 48))]
    choice = choose(splits, made.scheduler_shape(), FRAMES_A_REQUEST, 0.001, None)
    config = made.config | {"engine": {"codec_sms": choice.winner.settings["engine.codec_sms"]}}
    return _again(msgspec.structs.replace(made, splits=splits, choice=choice, config=config))


def _again(profile: Profile) -> Profile:
    """As it is read from its file."""
    return msgspec.json.decode(msgspec.json.encode(profile), type=Profile)
