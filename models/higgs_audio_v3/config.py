"""config.json of a Higgs Audio v3 checkpoint, read into plain dataclasses. No torch here."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from voxserve.checkpoint_config import checked, get, reading
from voxserve.errors import CheckpointError
from voxserve.models.higgs_audio_v3.published import CODEC, ROPE_THETA
from voxserve.plugin import Checkpoint

CONTROL_CODES = 2
"""Ids behind the sounds in each codebook's vocabulary: the first stands where a delayed codebook
has not begun, the second where it is over."""
SEMANTIC_PAD = 160
"""Silence around a clip for the semantic encoder, on either side, in samples at 16 kHz."""

CONTEXTS: Mapping[str, tuple[int, int]] = {"exact": (10, 10), "published": (12, 8)}
"""(left, ahead) frames around a chunk. The decoder hears just under ten frames to either side, so
the first gives the audio of one uncut decode; the second, of the paper, starts two steps sooner and
departs from it at the seams."""


@dataclass(frozen=True, slots=True)
class Body:
    """The Qwen 3 stack and its vocabularies. codes: of one codebook, control codes included."""

    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head: int
    eps: float
    theta: float
    text_vocabulary: int
    codebooks: int
    codes: int

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        text, audio = get(config, "text_config"), get(config, "audio_encoder_config")
        if text.get("model_type", "qwen3") != "qwen3" or text.get("use_sliding_window"):
            raise CheckpointError("the body must be a Qwen 3 without a sliding window")
        if not audio.get("tie_word_embeddings", True):
            raise CheckpointError("code embedding and code head must be tied, here they are not")
        hidden, heads = get(text, "hidden_size"), get(text, "num_attention_heads")
        rope = text.get("rope_parameters") or {}
        return cls(
            hidden=hidden,
            inner=get(text, "intermediate_size"),
            layers=get(text, "num_hidden_layers"),
            heads=heads,
            kv_heads=get(text, "num_key_value_heads"),
            head=text.get("head_dim") or hidden // heads,
            eps=get(text, "rms_norm_eps"),
            theta=float(text.get("rope_theta") or rope.get("rope_theta") or ROPE_THETA),
            text_vocabulary=get(text, "vocab_size"),
            codebooks=get(audio, "num_codebooks"),
            codes=get(audio, "vocab_size"),
        )

    @property
    def sounds(self) -> int:
        """Codes that are sounds; also the code of a codebook that has not begun."""
        return self.codes - CONTROL_CODES

    @property
    def end(self) -> int:
        """The code of a codebook that is over."""
        return self.codes - 1

    @property
    def lag(self) -> int:
        """Steps by which the last codebook follows the first."""
        return self.codebooks - 1


@dataclass(frozen=True, slots=True)
class Semantic:
    """The HuBERT that listens to reference clips, and the convolutions behind it."""

    rate_hz: int
    hidden: int
    inner: int
    layers: int
    heads: int
    eps: float
    channels: tuple[int, ...]
    kernels: tuple[int, ...]
    strides: tuple[int, ...]
    place_kernel: int
    place_groups: int
    kernel: int
    unit_kernel: int
    dilations: tuple[int, ...]
    blocks: int
    skip: int

    @classmethod
    def read(cls, codec: Mapping[str, Any], hop: int, rate_hz: int) -> Self:
        hubert = get(codec, "semantic_model_config")
        if set(codec["strides"]) != {1} or set(codec["channel_ratios"]) != {1}:
            raise CheckpointError("the semantic encoder must keep rate and width")
        own_hz = get(codec, "semantic_sample_rate")
        return cls(
            rate_hz=own_hz,
            hidden=get(hubert, "hidden_size"),
            inner=get(hubert, "intermediate_size"),
            layers=get(hubert, "num_hidden_layers"),
            heads=get(hubert, "num_attention_heads"),
            eps=get(hubert, "layer_norm_eps"),
            channels=tuple(get(hubert, "conv_dim")),
            kernels=tuple(get(hubert, "conv_kernel")),
            strides=tuple(get(hubert, "conv_stride")),
            place_kernel=get(hubert, "num_conv_pos_embeddings"),
            place_groups=get(hubert, "num_conv_pos_embedding_groups"),
            kernel=get(codec, "kernel_size"),
            unit_kernel=get(codec, "unit_kernel_size"),
            dilations=tuple(get(codec, "block_dilations")),
            blocks=len(codec["strides"]),
            skip=hop * own_hz // rate_hz // get(codec, "downsample_factor"),
        )

    def columns(self, samples: int) -> int:
        """What the convolutions in front make of so many samples of padded audio."""
        for kernel, stride in zip(self.kernels, self.strides, strict=True):
            samples = (samples - kernel) // stride + 1
        return samples


@dataclass(frozen=True, slots=True)
class Codec:
    """Codes to waveform and back. latent: width between quantiser and decoder."""

    rate_hz: int
    codes: int
    code_width: int
    latent: int
    decoder_width: int
    encoder_width: int
    up_rates: tuple[int, ...]
    down_rates: tuple[int, ...]
    semantic: Semantic

    @classmethod
    def read(cls, codec: Mapping[str, Any]) -> Self:
        dac, rate_hz = get(codec, "acoustic_model_config"), get(codec, "sample_rate")
        up, down = tuple(get(dac, "upsampling_ratios")), tuple(get(dac, "downsampling_ratios"))
        if math.prod(up) != math.prod(down):
            raise CheckpointError(f"the codec goes down by {down} and up by {up}")
        return cls(
            rate_hz=rate_hz,
            codes=get(codec, "codebook_size"),
            code_width=get(codec, "codebook_dim"),
            latent=get(dac, "hidden_size"),
            decoder_width=get(dac, "decoder_hidden_size"),
            encoder_width=get(dac, "encoder_hidden_size"),
            up_rates=up,
            down_rates=down,
            semantic=Semantic.read(codec, math.prod(up), rate_hz),
        )

    @property
    def hop(self) -> int:
        """Samples a frame."""
        return math.prod(self.up_rates)

    @property
    def hidden(self) -> int:
        """Width of what is quantised: the acoustic and the semantic side."""
        return self.latent + self.semantic.hidden

    def clip_frames(self, samples: int) -> int:
        """Frames of codes that a reference clip comes to; the semantic side decides."""
        own = -(-samples * self.semantic.rate_hz // self.rate_hz)
        return -(-self.semantic.columns(own + 2 * SEMANTIC_PAD) // self.semantic.skip)


@dataclass(frozen=True, slots=True)
class HiggsConfig:
    """Everything that config.json says. context: (left, ahead) frames around a chunk."""

    body: Body
    codec: Codec
    context: tuple[int, int]

    @classmethod
    def read(cls, checkpoint: Checkpoint) -> Self:
        """The published file describes no codec. Two fields are ours: `codec_config` in
        `audio_encoder_config`, for checkpoints with another one, and `codec_context`, a key of
        CONTEXTS.

        Raises CheckpointError where a field is missing or of another model.
        """
        with reading(checkpoint.name):
            return checked(cls._read(checkpoint.config), checkpoint.name)

    @classmethod
    def _read(cls, config: Mapping[str, Any]) -> Self:
        body = Body.read(config)
        given = get(config, "audio_encoder_config").get("codec_config")
        codec = Codec.read(CODEC if given is None else given)
        if body.sounds != codec.codes:
            message = f"{body.sounds} sounds a codebook, codec {codec.codes}"
            raise CheckpointError(f"language model and codec do not fit: {message}")
        context = config.get("codec_context", "exact")
        if context not in CONTEXTS:
            known = ", ".join(CONTEXTS)
            raise CheckpointError(f"codec_context is {context!r}, must be one of {known}")
        return cls(body, codec, CONTEXTS[context])
