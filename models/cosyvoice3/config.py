"""Sizes of a CosyVoice 3 checkpoint, read into plain dataclasses. No torch here.

They come from cosyvoice3.yaml, whose tags name classes that nobody builds here and whose values
refer to one another as `<name>`, and from the config.json of the Qwen 2 inside.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Self

from voxserve.checkpoint_config import checked, reading
from voxserve.errors import CheckpointError
from voxserve.plugin import Checkpoint

CONFIG_FILE = "cosyvoice3.yaml"
QWEN_FOLDER = "CosyVoice-BlankEN"
CONTROL_CODES = 200
"""Ids behind the codes in the speech table. None is a sound, and any of them ends the speech."""
END_OF_PROMPT = 151_646
"""What the reference insists on finding in every prompt."""

Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LmConfig:
    """The language model (llm.pt): a Qwen 2 with a table and a head of its own for speech."""

    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    eps: float
    theta: float
    text_vocabulary: int
    codes: int

    @property
    def head(self) -> int:
        return self.hidden // self.heads

    @property
    def speech_vocabulary(self) -> int:
        return self.codes + CONTROL_CODES

    @property
    def start(self) -> int:
        return self.codes

    @property
    def end(self) -> int:
        return self.codes + 1

    @property
    def task(self) -> int:
        """Stands between the text and the speech."""
        return self.codes + 2


@dataclass(frozen=True, slots=True)
class Repetition:
    """The published way to sample. A code that is among the last `window` ones `limit` times is
    drawn again, from all codes but itself."""

    top_p: float
    top_k: int
    window: int
    limit: float


@dataclass(frozen=True, slots=True)
class FlowConfig:
    """The flow (flow.pt); defaults are the published sizes."""

    vocabulary: int = 6561
    mel: int = 80
    speaker: int = 192
    dim: int = 1024
    depth: int = 22
    heads: int = 16
    head: int = 64
    ff_mult: int = 2
    lookahead_channels: int = 1024
    lookahead: int = 3
    steps: int = 10
    cfg: float = 0.7


@dataclass(frozen=True, slots=True)
class VocoderConfig:
    """The vocoder (hift.pt); defaults are the published sizes."""

    mel: int = 80
    base: int = 512
    harmonics: int = 8
    rate_hz: int = 24_000
    alpha: float = 0.1
    sigma: float = 0.003
    voiced: float = 10.0
    rates: tuple[int, ...] = (8, 5, 3)
    kernels: tuple[int, ...] = (16, 11, 7)
    fft: int = 16
    hop: int = 4
    res_kernels: tuple[int, ...] = (3, 7, 11)
    res_dilations: tuple[tuple[int, ...], ...] = ((1, 3, 5),) * 3
    source_kernels: tuple[int, ...] = (7, 7, 11)
    source_dilations: tuple[tuple[int, ...], ...] = ((1, 3, 5),) * 3
    slope: float = 0.1
    limit: float = 0.99
    look_right: int = 4
    f0_channels: int = 512


@dataclass(frozen=True, slots=True)
class CosyVoiceConfig:
    lm: LmConfig
    repetition: Repetition
    flow: FlowConfig
    vocoder: VocoderConfig

    @classmethod
    def read(cls, checkpoint: Checkpoint) -> Self:
        """Raises CheckpointError naming what is missing, or is of no kind that this package has."""
        with reading(checkpoint.name):
            yaml = resolved(checkpoint.config)
            qwen = yaml["qwen"] if checkpoint.folder is None else _qwen(checkpoint)
            made = cls(
                lm=_lm(yaml["llm"], qwen),
                repetition=_repetition(yaml["llm"]["sampling"]),
                flow=_flow(yaml["flow"]),
                vocoder=_vocoder(yaml["hift"]),
            )
            _check(yaml)
            return checked(made, checkpoint.name)


def resolved(config: Raw) -> dict[str, Any]:
    """The configuration with every `<name>`, and every product of such, as its value."""

    def value(raw: Any) -> Any:
        if isinstance(raw, Mapping):
            return {name: value(inner) for name, inner in raw.items()}
        if isinstance(raw, Sequence) and not isinstance(raw, str):
            return [value(inner) for inner in raw]
        if not isinstance(raw, str) or not raw.startswith("<"):
            return raw
        factors = [factor.strip(" <>") for factor in raw.split("*")]
        if len(factors) == 1:
            return config.get(factors[0])
        return prod(config[factor] for factor in factors)

    return {name: value(raw) for name, raw in config.items()}


def _qwen(checkpoint: Checkpoint) -> Raw:
    assert checkpoint.folder is not None
    file = checkpoint.folder / QWEN_FOLDER / "config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read {file}: {error}") from error
    return config if isinstance(config, Mapping) else {}


def _lm(llm: Raw, qwen: Raw) -> LmConfig:
    if qwen.get("use_sliding_window") or qwen.get("rope_scaling"):
        raise CheckpointError("sliding windows and scaled positions are not of this model")
    return LmConfig(
        hidden=qwen["hidden_size"],
        inner=qwen["intermediate_size"],
        layers=qwen["num_hidden_layers"],
        heads=qwen["num_attention_heads"],
        kv_heads=qwen["num_key_value_heads"],
        eps=qwen["rms_norm_eps"],
        theta=qwen["rope_theta"],
        text_vocabulary=qwen["vocab_size"],
        codes=llm["speech_token_size"],
    )


def _repetition(sampling: Raw) -> Repetition:
    window = sampling["win_size"]
    return Repetition(sampling["top_p"], sampling["top_k"], window, window * sampling["tau_r"])


def _flow(flow: Raw) -> FlowConfig:
    ahead, estimator = flow["pre_lookahead_layer"], flow["decoder"]["estimator"]
    return FlowConfig(
        vocabulary=flow["vocab_size"],
        mel=flow["output_size"],
        speaker=flow["spk_embed_dim"],
        dim=estimator["dim"],
        depth=estimator["depth"],
        heads=estimator["heads"],
        head=estimator["dim_head"],
        ff_mult=estimator["ff_mult"],
        lookahead_channels=ahead["channels"],
        lookahead=ahead["pre_lookahead_len"],
        cfg=flow["decoder"]["cfm_params"]["content"]["inference_cfg_rate"],
    )


def _vocoder(hift: Raw) -> VocoderConfig:
    return VocoderConfig(
        mel=hift["in_channels"],
        base=hift["base_channels"],
        harmonics=hift["nb_harmonics"],
        rate_hz=hift["sampling_rate"],
        alpha=hift["nsf_alpha"],
        sigma=hift["nsf_sigma"],
        voiced=hift["nsf_voiced_threshold"],
        rates=tuple(hift["upsample_rates"]),
        kernels=tuple(hift["upsample_kernel_sizes"]),
        fft=hift["istft_params"]["n_fft"],
        hop=hift["istft_params"]["hop_len"],
        res_kernels=tuple(hift["resblock_kernel_sizes"]),
        res_dilations=tuple(map(tuple, hift["resblock_dilation_sizes"])),
        source_kernels=tuple(hift["source_resblock_kernel_sizes"]),
        source_dilations=tuple(map(tuple, hift["source_resblock_dilation_sizes"])),
        slope=hift["lrelu_slope"],
        limit=hift["audio_limit"],
        look_right=hift["conv_pre_look_right"],
        f0_channels=hift["f0_predictor"]["cond_channels"],
    )


def _check(yaml: Raw) -> None:
    """What the code takes for granted, because every published checkpoint has it."""
    solver = yaml["flow"]["decoder"]["cfm_params"]["content"]
    found = {
        "sample_rate": yaml["sample_rate"],
        "token_frame_rate": yaml["token_frame_rate"],
        "token_mel_ratio": yaml["token_mel_ratio"],
        "static_chunk_size": yaml["flow"]["decoder"]["estimator"]["static_chunk_size"],
        "pre_lookahead_len": yaml["flow"]["pre_lookahead_len"],
        "solver": solver["solver"],
        "t_scheduler": solver["t_scheduler"],
    }
    expected = dict(zip(found, (24_000, 25, 2, 50, 3, "euler", "cosine"), strict=True))
    for name, value in found.items():
        if value != expected[name]:
            raise CheckpointError(f"{name} of {CONFIG_FILE} is {value!r}, not {expected[name]!r}")
