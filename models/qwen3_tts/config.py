"""The configuration files of a Qwen3-TTS checkpoint, read into plain dataclasses.

No torch here: host logic and device code read the same values. A checkpoint is one folder with
config.json, generation_config.json, a byte-level BPE (vocab.json, merges.txt), model.safetensors
and the codec in speech_tokenizer/. Fine-tunes differ in values only, speaker ids above all.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from voxserve.checkpoint_config import checked, get, reading
from voxserve.errors import CheckpointError
from voxserve.models.qwen3_tts.published import CODEC, GENERATION
from voxserve.plugin import Checkpoint

KINDS = {"custom_voice": "CustomVoice", "voice_design": "VoiceDesign", "base": "Base"}
"""`tts_model_type` of a checkpoint and the task name that clients use."""


@dataclass(frozen=True, slots=True)
class Transformer:
    """Sizes of one stack of decoder layers."""

    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head: int
    eps: float
    theta: float

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        if config.get("attention_bias") or config.get("use_sliding_window"):
            raise CheckpointError("attention biases and sliding windows are not of this model")
        hidden, heads = get(config, "hidden_size"), get(config, "num_attention_heads")
        return cls(
            hidden=hidden,
            inner=get(config, "intermediate_size"),
            layers=get(config, "num_hidden_layers"),
            heads=heads,
            kv_heads=get(config, "num_key_value_heads"),
            head=config.get("head_dim") or hidden // heads,
            eps=get(config, "rms_norm_eps"),
            theta=float(get(config, "rope_theta")),
        )


@dataclass(frozen=True, slots=True)
class ControlCodes:
    """Ids of the talker's code vocabulary that are no sound."""

    pad: int
    bos: int
    eos: int
    think: int
    nothink: int
    think_bos: int
    think_eos: int


@dataclass(frozen=True, slots=True)
class Talker:
    """The language model: `body` predicts a frame's first code, `depth` the others."""

    body: Transformer
    depth: Transformer
    codes: int
    depth_codes: int
    codebooks: int
    text_vocabulary: int
    text_hidden: int
    max_context: int
    control: ControlCodes
    languages: Mapping[str, int]
    speakers: Mapping[str, int]
    dialects: Mapping[str, str]

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        depth = get(config, "code_predictor_config")
        ids = {
            "eos" if name == "eos_token" else name: int(get(config, f"codec_{name}_id"))
            for name in ("pad", "bos", "eos_token", "think", "nothink", "think_bos", "think_eos")
        }
        named = config.get("spk_is_dialect") or {}
        return cls(
            body=Transformer.read(config),
            depth=Transformer.read(depth),
            codes=get(config, "vocab_size"),
            depth_codes=get(depth, "vocab_size"),
            codebooks=get(config, "num_code_groups"),
            text_vocabulary=get(config, "text_vocab_size"),
            text_hidden=get(config, "text_hidden_size"),
            max_context=get(config, "max_position_embeddings"),
            control=ControlCodes(**ids),
            languages={k.lower(): int(v) for k, v in get(config, "codec_language_id").items()},
            speakers={k.lower(): int(v) for k, v in (config.get("spk_id") or {}).items()},
            dialects={k.lower(): v for k, v in named.items() if isinstance(v, str)},
        )

    def check_names(self) -> None:
        """Raises CheckpointError for a dialect that is none of the languages."""
        for speaker, dialect in self.dialects.items():
            if dialect not in self.languages:
                raise CheckpointError(f"speaker {speaker} speaks {dialect}, which is no language")


@dataclass(frozen=True, slots=True)
class Speaker:
    """The encoder that turns a reference clip into one vector (Base models)."""

    size: int
    channels: tuple[int, ...] = (512, 512, 512, 512, 1536)
    kernels: tuple[int, ...] = (5, 3, 3, 3, 1)
    dilations: tuple[int, ...] = (1, 2, 3, 4, 1)
    attention: int = 128
    scale: int = 8
    squeeze: int = 128
    mels: int = 128

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        names = {
            "channels": "enc_channels",
            "kernels": "enc_kernel_sizes",
            "dilations": "enc_dilations",
            "attention": "enc_attention_channels",
            "scale": "enc_res2net_scale",
            "squeeze": "enc_se_channels",
            "mels": "mel_dim",
        }
        values: dict[str, Any] = {
            ours: tuple(config[theirs]) if isinstance(config[theirs], list) else config[theirs]
            for ours, theirs in names.items()
            if theirs in config
        }
        return cls(size=get(config, "enc_dim"), **values)


@dataclass(frozen=True, slots=True)
class CodecDecoder:
    """Codes to waveform."""

    body: Transformer
    codebooks: int
    codes: int
    code_width: int
    latent: int
    window: int
    width: int
    rates: tuple[int, ...]
    early_rates: tuple[int, ...]

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        return cls(
            body=Transformer.read(config),
            codebooks=get(config, "num_quantizers"),
            codes=get(config, "codebook_size"),
            code_width=get(config, "codebook_dim"),
            latent=get(config, "latent_dim"),
            window=get(config, "sliding_window"),
            width=get(config, "decoder_dim"),
            rates=tuple(get(config, "upsample_rates")),
            early_rates=tuple(get(config, "upsampling_ratios")),
        )

    @property
    def samples_per_frame(self) -> int:
        return math.prod(self.rates) * math.prod(self.early_rates)

    @property
    def conv_state(self) -> int:
        """Values that the convolutions of one stream have to remember."""
        total = 2 * self.code_width + 6 * self.latent * (len(self.early_rates) + 1)
        width = self.width
        for _ in self.rates:
            total += width + (width // 2) * (6 + 18 + 54)
            width //= 2
        return total + 6 * width

    @property
    def window_state(self) -> tuple[int, ...]:
        """Shape of the transformer's keys and values of one stream."""
        return (self.body.layers, 2, self.window - 1, self.body.kv_heads, self.body.head)


@dataclass(frozen=True, slots=True)
class CodecEncoder:
    """Waveform to codes: the encoder half of Mimi, in the names of its published form."""

    filters: int
    hidden: int
    inner: int
    layers: int
    heads: int
    head: int
    eps: float
    theta: float
    rates: tuple[int, ...]
    kernel: int
    last_kernel: int
    residual_kernel: int
    compress: int
    codes: int
    code_width: int
    books: int
    semantic_books: int

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        hidden, heads = get(config, "hidden_size"), get(config, "num_attention_heads")
        return cls(
            filters=get(config, "num_filters"),
            hidden=hidden,
            inner=get(config, "intermediate_size"),
            layers=get(config, "num_hidden_layers"),
            heads=heads,
            head=config.get("head_dim") or hidden // heads,
            eps=get(config, "norm_eps"),
            theta=float(get(config, "rope_theta")),
            rates=tuple(reversed(get(config, "upsampling_ratios"))),
            kernel=get(config, "kernel_size"),
            last_kernel=get(config, "last_kernel_size"),
            residual_kernel=get(config, "residual_kernel_size"),
            compress=get(config, "compress"),
            codes=get(config, "codebook_size"),
            code_width=get(config, "codebook_dim"),
            books=get(config, "num_quantizers"),
            semantic_books=get(config, "num_semantic_quantizers"),
        )


@dataclass(frozen=True, slots=True)
class Defaults:
    """Sampling defaults of the checkpoint; a temperature of 0 takes the likeliest code."""

    temperature: float
    top_k: int
    top_p: float
    repetition_penalty: float
    subtalker_temperature: float
    subtalker_top_k: int
    subtalker_top_p: float
    max_new_tokens: int

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        values = {**GENERATION, "max_new_tokens": 2048, **config}
        greedy, depth_greedy = not values["do_sample"], not values["subtalker_dosample"]
        return cls(
            temperature=0.0 if greedy else float(values["temperature"]),
            top_k=int(values["top_k"]),
            top_p=float(values["top_p"]),
            repetition_penalty=float(values["repetition_penalty"]),
            subtalker_temperature=0.0 if depth_greedy else float(values["subtalker_temperature"]),
            subtalker_top_k=int(values["subtalker_top_k"]),
            subtalker_top_p=float(values["subtalker_top_p"]),
            max_new_tokens=int(values["max_new_tokens"]),
        )


@dataclass(frozen=True, slots=True)
class Qwen3Config:
    """Everything that the files of one checkpoint say. Text ids first, then the parts."""

    kind: str
    size: str
    im_start: int
    im_end: int
    assistant: int
    text_pad: int
    text_bos: int
    text_eos: int
    sample_rate_hz: int
    talker: Talker
    speaker: Speaker | None
    decoder: CodecDecoder
    encoder: CodecEncoder
    defaults: Defaults

    @classmethod
    def read(cls, checkpoint: Checkpoint) -> Self:
        """Raises CheckpointError where a file or field is missing or of another model."""
        with reading(checkpoint.name):
            self = checked(cls._read(checkpoint), checkpoint.name)
        self.talker.check_names()
        if self.talker.codebooks != self.decoder.codebooks:
            message = f"{self.talker.codebooks} codes a frame, codec {self.decoder.codebooks}"
            raise CheckpointError(f"talker and codec do not fit: {message}")
        return self

    @classmethod
    def _read(cls, checkpoint: Checkpoint) -> Self:
        config, folder = checkpoint.config, checkpoint.folder
        kind = get(config, "tts_model_type")
        if kind not in KINDS:
            raise CheckpointError(f"tts_model_type is {kind}, known are {', '.join(KINDS)}")
        codec = CODEC if folder is None else _json(folder / "speech_tokenizer" / "config.json")
        generation = {} if folder is None else _optional(folder / "generation_config.json")
        speaker = config.get("speaker_encoder_config") if kind == "base" else None
        return cls(
            kind=kind,
            size=str(get(config, "tts_model_size")),
            im_start=get(config, "im_start_token_id"),
            im_end=get(config, "im_end_token_id"),
            assistant=get(config, "assistant_token_id"),
            text_pad=get(config, "tts_pad_token_id"),
            text_bos=get(config, "tts_bos_token_id"),
            text_eos=get(config, "tts_eos_token_id"),
            sample_rate_hz=get(codec, "output_sample_rate"),
            talker=Talker.read(get(config, "talker_config")),
            speaker=Speaker.read(speaker or {}) if kind == "base" else None,
            decoder=CodecDecoder.read(get(codec, "decoder_config")),
            encoder=CodecEncoder.read(get(codec, "encoder_config")),
            defaults=Defaults.read(generation),
        )

    @property
    def clones(self) -> bool:
        """Whether the model speaks in the voice of a reference clip."""
        return self.speaker is not None

    @property
    def instructs(self) -> bool:
        """Whether the model follows instructions; the small CustomVoice was not trained to."""
        return self.kind == "voice_design" or (self.kind == "custom_voice" and self.size != "0b6")


def _json(path: Path) -> Mapping[str, Any]:
    try:
        value: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read {path.parent.name}/{path.name}: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path.parent.name}/{path.name} holds no object")
    return value


def _optional(path: Path) -> Mapping[str, Any]:
    return _json(path) if path.exists() else {}
