"""What the published checkpoint says, for dummy weights of real shapes without a download.

Only what this package reads is here; a real checkpoint brings its own config.json. It brings none
for its codec, so `CODEC` holds for it too.
"""

from collections.abc import Mapping
from typing import Any

MODEL_TYPE = "higgs_multimodal_qwen3"

ROPE_THETA = 1e6
"""The rotary base of Qwen 3, which the published file leaves open."""

CODEC: Mapping[str, Any] = {
    "sample_rate": 24_000,
    "semantic_sample_rate": 16_000,
    "downsample_factor": 320,
    "codebook_size": 1024,
    "codebook_dim": 64,
    "kernel_size": 3,
    "unit_kernel_size": 3,
    "block_dilations": [1, 1],
    "channel_ratios": [1, 1],
    "strides": [1, 1],
    "acoustic_model_config": {
        "encoder_hidden_size": 64,
        "decoder_hidden_size": 1024,
        "hidden_size": 256,
        "downsampling_ratios": [8, 5, 4, 2, 3],
        "upsampling_ratios": [8, 5, 4, 2, 3],
    },
    "semantic_model_config": {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "layer_norm_eps": 1e-5,
        "conv_dim": [512, 512, 512, 512, 512, 512, 512],
        "conv_kernel": [10, 3, 3, 3, 3, 2, 2],
        "conv_stride": [5, 2, 2, 2, 2, 2, 2],
        "num_conv_pos_embeddings": 128,
        "num_conv_pos_embedding_groups": 16,
    },
}
"""The codec's configuration in the names that transformers gives it: a Higgs Audio v2 tokenizer
with eight codebooks at 25 frames a second."""

_MODEL: Mapping[str, Any] = {
    "model_type": MODEL_TYPE,
    "audio_token_id": -100,
    "text_config": {
        "model_type": "qwen3",
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "rms_norm_eps": 1e-6,
        "rope_theta": None,
        "vocab_size": 151_936,
    },
    "audio_encoder_config": {
        "encoder_type": "discrete",
        "num_codebooks": 8,
        "vocab_size": 1026,
        "tie_word_embeddings": True,
    },
}


def published() -> Mapping[str, Mapping[str, Any]]:
    """config.json by hub id; the second is the name that it had at first."""
    names = ("bosonai/higgs-tts-3-4b", "bosonai/higgs-audio-v3-tts-4b")
    return dict.fromkeys(names, _MODEL)
