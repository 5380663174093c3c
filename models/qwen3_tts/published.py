"""Configurations of the published checkpoints, for dummy weights of real shapes without a download.

Only what this package reads is here; a real checkpoint brings its own files.
"""

from collections.abc import Mapping
from typing import Any

GENERATION: Mapping[str, Any] = {
    "do_sample": True,
    "temperature": 0.9,
    "top_k": 50,
    "top_p": 1.0,
    "repetition_penalty": 1.05,
    "subtalker_dosample": True,
    "subtalker_temperature": 0.9,
    "subtalker_top_k": 50,
    "subtalker_top_p": 1.0,
}
"""What generation_config.json says in every published checkpoint, and holds where it is silent."""

CODEC: Mapping[str, Any] = {
    "output_sample_rate": 24000,
    "decoder_config": {
        "codebook_size": 2048,
        "codebook_dim": 512,
        "num_quantizers": 16,
        "latent_dim": 1024,
        "hidden_size": 512,
        "intermediate_size": 1024,
        "head_dim": 64,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "num_hidden_layers": 8,
        "sliding_window": 72,
        "rope_theta": 10000,
        "rms_norm_eps": 1e-5,
        "decoder_dim": 1536,
        "upsample_rates": [8, 5, 4, 3],
        "upsampling_ratios": [2, 2],
    },
    "encoder_config": {
        "hidden_size": 512,
        "num_filters": 64,
        "upsampling_ratios": [8, 6, 5, 4],
        "kernel_size": 7,
        "last_kernel_size": 3,
        "residual_kernel_size": 3,
        "compress": 2,
        "codebook_size": 2048,
        "codebook_dim": 256,
        "num_quantizers": 32,
        "num_semantic_quantizers": 1,
        "num_hidden_layers": 8,
        "intermediate_size": 2048,
        "num_attention_heads": 8,
        "norm_eps": 1e-5,
        "rope_theta": 10000.0,
    },
}
"""speech_tokenizer/config.json, the same in every published checkpoint."""

_LANGUAGES = {
    "english": 2050,
    "german": 2053,
    "spanish": 2054,
    "chinese": 2055,
    "japanese": 2058,
    "french": 2061,
    "korean": 2064,
    "russian": 2069,
    "italian": 2070,
    "portuguese": 2071,
}
_DIALECTS = {"sichuan_dialect": 2062, "beijing_dialect": 2074}
_SPEAKERS = {
    "aiden": 2861,
    "sohee": 2864,
    "ono_anna": 2873,
    "eric": 2875,
    "dylan": 2878,
    "uncle_fu": 3010,
    "ryan": 3061,
    "vivian": 3065,
    "serena": 3066,
}
_DIALECT_OF = {"eric": "sichuan_dialect", "dylan": "beijing_dialect"}


def _model(kind: str, size: str) -> Mapping[str, Any]:
    custom = kind == "custom_voice"
    hidden, inner = (2048, 6144) if size == "1b7" else (1024, 3072)
    attention = {
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000,
    }
    talker = {
        **attention,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": 28,
        "max_position_embeddings": 32768,
        "vocab_size": 3072,
        "num_code_groups": 16,
        "text_vocab_size": 151936,
        "text_hidden_size": 2048,
        "codec_pad_id": 2148,
        "codec_bos_id": 2149,
        "codec_eos_token_id": 2150,
        "codec_think_id": 2154,
        "codec_nothink_id": 2155,
        "codec_think_bos_id": 2156,
        "codec_think_eos_id": 2157,
        "codec_language_id": {**_LANGUAGES, **_DIALECTS} if custom else _LANGUAGES,
        "spk_id": _SPEAKERS if custom else {},
        "spk_is_dialect": {s: _DIALECT_OF.get(s, False) for s in _SPEAKERS} if custom else {},
        "code_predictor_config": {
            **attention,
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "num_hidden_layers": 5,
            "vocab_size": 2048,
            "num_code_groups": 16,
        },
    }
    config = {
        "model_type": "qwen3_tts",
        "tokenizer_type": "qwen3_tts_tokenizer_12hz",
        "tts_model_type": kind,
        "tts_model_size": size,
        "im_start_token_id": 151644,
        "im_end_token_id": 151645,
        "assistant_token_id": 77091,
        "tts_pad_token_id": 151671,
        "tts_bos_token_id": 151672,
        "tts_eos_token_id": 151673,
        "talker_config": talker,
    }
    if kind == "base":
        config["speaker_encoder_config"] = {"enc_dim": hidden, "sample_rate": 24000}
    return config


def published() -> Mapping[str, Mapping[str, Any]]:
    """config.json by hub id."""
    at = "Qwen/Qwen3-TTS-12Hz-"
    return {
        f"{at}1.7B-CustomVoice": _model("custom_voice", "1b7"),
        f"{at}1.7B-VoiceDesign": _model("voice_design", "1b7"),
        f"{at}1.7B-Base": _model("base", "1b7"),
        f"{at}0.6B-CustomVoice": _model("custom_voice", "0b6"),
        f"{at}0.6B-Base": _model("base", "0b6"),
    }
