"""The partitions of a GPU: CUDA streams that are bound to disjoint sets of its SMs.

Green contexts come from the driver (CUDA 12.4 or later) through cuda-bindings. SM counts are read
from the device, and the driver rounds what is asked for to its own granularity.
"""

import logging
from dataclasses import dataclass
from typing import Any

import torch

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Partitions:
    """A stream for each kind of work. sms: SMs by partition; equal numbers when nothing is split.

    lm, codec: disjoint sets of SMs. whole, urgent: all SMs, the latter at the highest priority.
    handles: keeps the green contexts alive.
    """

    lm: torch.cuda.Stream
    codec: torch.cuda.Stream
    whole: torch.cuda.Stream
    urgent: torch.cuda.Stream
    sms: dict[str, int]
    handles: tuple[Any, ...] = ()


def partition(device: int, codec_sms: int) -> Partitions:
    """Give the codec `codec_sms` SMs and the LM the remainder.

    Where the driver or the bindings cannot, or with `codec_sms` 0, all streams share every SM; the
    former is logged as a warning. Raises ValueError when nothing would be left for the LM.
    """
    total = torch.cuda.get_device_properties(device).multi_processor_count
    if codec_sms >= total:
        raise ValueError(f"engine.codec_sms is {codec_sms}, this GPU has {total} SMs in all")
    _, highest = torch.cuda.Stream.priority_range()  # type: ignore[call-arg]
    whole, urgent = torch.cuda.Stream(), torch.cuda.Stream(priority=highest)
    lm, codec = torch.cuda.Stream(), torch.cuda.Stream()
    sms = dict.fromkeys(("whole", "lm", "codec"), total)
    handles: tuple[Any, ...] = ()
    if codec_sms:
        try:
            (lm_sms, lm, a), (got, codec, b) = _split(device, codec_sms)
        except (ImportError, RuntimeError) as error:
            _log.warning("no green contexts (%s): all lanes share all %d SMs", error, total)
        else:
            sms |= {"lm": lm_sms, "codec": got}
            handles = (a, b)
            _log.info("SMs: %d for the LM, %d for the codec (asked: %d)", lm_sms, got, codec_sms)
    return Partitions(lm, codec, whole, urgent, sms, handles)


def _split(device: int, codec_sms: int) -> list[tuple[int, torch.cuda.Stream, Any]]:
    """(SMs, stream, context) of the remainder and of the codec's part."""
    import cuda.bindings.driver as driver

    def check(result: tuple[Any, ...]) -> Any:
        if result[0] != driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"the driver answers {result[0].name}")
        return result[1] if len(result) == 2 else result[1:]

    torch.cuda.init()
    handle = check(driver.cuDeviceGet(device))
    kind = driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
    all_sms = check(driver.cuDeviceGetDevResource(handle, kind))
    groups, _, remainder = check(driver.cuDevSmResourceSplitByCount(1, all_sms, 0, codec_sms))
    made: list[tuple[int, torch.cuda.Stream, Any]] = []
    for resource in (remainder, groups[0]):
        description = check(driver.cuDevResourceGenerateDesc([resource], 1))
        flags = driver.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM
        context = check(driver.cuGreenCtxCreate(description, handle, flags))
        flag = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
        stream = check(driver.cuGreenCtxStreamCreate(context, flag, 0))
        external = torch.cuda.ExternalStream(int(stream))
        made.append((resource.sm.smCount, external, context))
    return made
