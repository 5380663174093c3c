"""What the flow and the vocoder remember of a request, and how much sound a chunk gives.

No torch here: the engine sizes memory by it, and the host logic counts samples by it.
"""

from math import prod

from voxserve.models.cosyvoice3.config import FlowConfig, VocoderConfig
from voxserve.plugin import StateTensor

BLOCK_FRAMES = 50
"""Mel frames that attend to each other, as the flow was trained (25 codes)."""
BRANCHES = 2
"""With and without the conditions (classifier-free guidance), in this order."""
POSITION_KERNEL = 31
"""Width of the flow's two position convolutions."""
F0_KERNEL, F0_LAYERS = 3, 4
"""The F0 predictor's causal layers, behind the one that looks ahead."""
F0_AHEAD = 3
UPSAMPLE_TAPS = 3
"""Input columns that an upsampling convolution of the published sizes reaches over."""
POST_KERNEL = 7


def flow_state(config: FlowConfig) -> tuple[StateTensor, ...]:
    """A page is one block: keys and values of each step, branch and layer (pool `flow`).

    `flow.kv.LAYER`: [pages + 1, steps, branches, 2, frames, heads, head], finite everywhere.
    `flow.conv`, and behind a clip `clip.flow.conv`: the last inputs of the position convolutions.
    """
    page = (config.steps, BRANCHES, 2, BLOCK_FRAMES, config.heads, config.head)
    conv = (config.steps, BRANCHES, 2, POSITION_KERNEL - 1, config.dim)
    return (
        *(
            StateTensor(f"flow.kv.{layer}", page, scope="page", pool="flow")
            for layer in range(config.depth)
        ),
        StateTensor("flow.conv", conv),
        StateTensor("clip.flow.conv", conv, scope="clip"),
    )


def held_frames(config: VocoderConfig) -> int:
    """Mel frames that a chunk holds back: F0 and the first convolution look ahead, and the last
    windows overlap the next frame."""
    return F0_AHEAD + config.look_right + 1


def frame_samples(config: VocoderConfig) -> int:
    """Samples a mel frame."""
    return prod(config.rates) * config.hop


def emitted_samples(config: VocoderConfig, first: int, frames: int, last: bool) -> int:
    """Samples of a chunk: `frames` mel frames from number `first` on, counted from the first one
    that is heard. A first chunk lacks what it holds back, a last one gives all."""
    held = held_frames(config)
    start = max(first - held, 0)
    end = first + frames - (0 if last else held)
    return max(end - start, 0) * frame_samples(config)


def conv_columns(config: VocoderConfig) -> int:
    """Length of the vocoder's flat convolution state."""
    total, width = 0, config.base
    for stage, kernel in enumerate(config.source_kernels):
        total += width * (UPSAMPLE_TAPS - 1)
        width //= 2
        if stage == len(config.rates) - 1:
            total += width
        total += width * _block_columns(kernel, config.source_dilations[stage])
        for size, dilations in zip(config.res_kernels, config.res_dilations, strict=True):
            total += width * _block_columns(size, dilations)
    return total + width * (POST_KERNEL - 1)


def source_reach(config: VocoderConfig) -> int:
    """Lines of the excitation's spectrum before a chunk that its first column depends on."""
    return prod(config.rates[1:]) - 1


def _block_columns(kernel: int, dilations: tuple[int, ...]) -> int:
    """Columns that a residual block keeps: a dilated and a plain convolution for each dilation."""
    return sum((kernel - 1) * (dilation + 1) for dilation in dilations)


def vocoder_state(config: VocoderConfig) -> tuple[StateTensor, ...]:
    """Rows that start at zero; the numbers that add up over a request are wide."""
    bins, lines = config.fft + 2, source_reach(config) + 1
    f0 = F0_LAYERS * config.f0_channels * (F0_KERNEL - 1)
    return (
        StateTensor("vocoder.mel", (held_frames(config), config.mel), "float32"),
        StateTensor("vocoder.f0", (f0,), "float64"),
        StateTensor("vocoder.phase", (config.harmonics + 1,), "float64"),
        StateTensor("vocoder.frame", (), "int64"),
        StateTensor("vocoder.conv", (conv_columns(config),)),
        StateTensor("vocoder.wave", (config.fft // 2 + bins * lines,), "float64"),
    )
