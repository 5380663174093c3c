"""The device side of an engine: memory, stages and every executable, on a CPU or a GPU."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from voxserve.config import Config, EngineConfig
from voxserve.engine.cpu import CpuBackend
from voxserve.engine.executables import Padding, engine_policy, keys_of, shape_of
from voxserve.engine.lanes import Backend, Key
from voxserve.engine.memory import Sizes, allocate, codes_table, sizes_for
from voxserve.engine.stages import Stages
from voxserve.engine.threads import threads_of, usable_cores
from voxserve.plugin import ModelSpec, SpeechModel, Target, row_invariant
from voxserve.scheduler.estimates import Bucket
from voxserve.scheduler.launches import Lane, Stage
from voxserve.scheduler.policy import Policy, Shape

Report = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


def target_of(config: EngineConfig) -> Target:
    """The device, the dtype and the kernels in use.

    Raises ValueError for a device that is not there, or cannot do what is asked.
    """
    there = torch.cuda.is_available()
    if config.device == "cuda" and not there:
        raise ValueError("engine.device is cuda, but torch sees no CUDA device")
    if config.device == "cpu" or not there:
        return Target("cpu", "float32" if config.dtype == "auto" else config.dtype)
    dtype = "bfloat16" if config.dtype == "auto" else config.dtype
    fused = dtype == "bfloat16"
    lm, codec = config.lm_kernels, config.codec_kernels
    target = Target(
        "cuda",
        dtype,
        lm_kernels=("fused" if fused else "reference") if lm == "auto" else lm,
        codec_kernels=("fused" if fused else "eager") if codec == "auto" else codec,
    )
    if config.deterministic and (target.lm_kernels, target.codec_kernels) != ("fused", "fused"):
        raise ValueError(
            "engine.deterministic on a GPU takes fused kernels, but with engine.dtype "
            f"{config.dtype} engine.lm_kernels comes to {target.lm_kernels} and "
            f"engine.codec_kernels to {target.codec_kernels}"
        )
    return target


@dataclass(frozen=True, slots=True)
class Built:
    """A backend and what it was sized by. keys: every executable that a plan can ask for.

    sms: SMs of each partition of a GPU; empty on a CPU, which has none.
    """

    backend: Backend
    spec: ModelSpec
    policy: Policy
    shape: Shape
    sizes: Sizes
    padding: Padding
    keys: list[Key]
    sms: dict[str, int]

    def warm_up(self, report: Report) -> dict[Bucket, float]:
        """Make every executable ready and run it once on the spare rows; seconds that each took.

        Partitions are one and the same on a CPU, so what differs in nothing else runs only once.
        """
        groups: dict[tuple[object, ...], list[Key]] = {}
        for key in self.keys:
            part = key.partition if self.backend.polls else ""
            groups.setdefault((key.stage, key.rows, key.units, part), []).append(key)
        seconds: dict[Bucket, float] = {}
        for number, same in enumerate(groups.values()):
            report("warming up", number, len(groups))
            inputs = self.padding.blank(same[0], self.spec, self.sizes)
            run_s = self.backend.warm(same[0], inputs)
            seconds |= {(lane_of(key), key.stage, key.rows, key.units): run_s for key in same}
        report("warming up", len(groups), len(groups))
        return seconds


def build(config: Config, spec: ModelSpec, model: SpeechModel, *, padded: bool = False) -> Built:
    """Divide the memory and set the lanes up; nothing has run yet.

    padded: compute padding rows on a CPU as well. Raises ValueError when the memory does not
    suffice, or the model cannot be deterministic where it is asked to be.
    """
    settings = config.engine
    target = target_of(settings)
    if settings.deterministic and target.device == "cuda" and not row_invariant(model):
        raise ValueError(
            f"engine.deterministic is true, but on a GPU {config.model} rounds with the batch; "
            "on engine.device cpu every model can"
        )
    device, dtype = target.device, target.dtype
    sizes = sizes_for(spec, settings, dtype, device)
    policy = engine_policy(config.policy.policy(), deterministic=settings.deterministic)
    pages, clip_pages = tuple(sizes.pages.values()), tuple(sizes.clip_pages.values())
    shape = shape_of(spec, policy, sizes.slots, pages, sizes.clips, clip_pages)
    stages = Stages(model, spec, allocate(spec, sizes, device), codes_table(spec, sizes, device))
    padding = Padding(sizes.slots, sizes.clips, sizes.spare_pages)
    keys = keys_of(shape)
    backend: Backend
    sms: dict[str, int] = {}
    if device == "cuda":
        from voxserve.engine.cuda import CudaBackend
        from voxserve.engine.green_contexts import partition

        # Who asks for float32 gets it in convolutions too; cuDNN would round to 10 bits.
        torch.backends.cudnn.allow_tf32 = dtype != "float32"
        torch.backends.cudnn.deterministic = settings.deterministic
        parts = partition(torch.cuda.current_device(), settings.codec_sms)
        sms = dict(parts.sms)
        fixed = settings.deterministic
        backend = CudaBackend(stages, parts, padding, torch.device(device), fixed=fixed)
    else:
        backend = CpuBackend(
            stages,
            spec,
            keys,
            threads=threads_of(settings, device, usable_cores()),
            deterministic=settings.deterministic,
            padding=padding if padded else None,
        )
    return Built(backend, spec, policy, shape, sizes, padding, keys, sms)


def lane_of(key: Key) -> Lane:
    """The lane that runs an executable."""
    if key.stage is not Stage.CODEC:
        return Lane.LM
    return Lane.BACKGROUND if key.partition == "codec" else Lane.URGENT
