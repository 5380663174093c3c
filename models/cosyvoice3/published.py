"""The configuration of the published checkpoint, for dummy weights without a download.

Only what this package reads is here, in the form in which the checkpoint's own cosyvoice3.yaml and
CosyVoice-BlankEN/config.json are read.
"""

from collections.abc import Mapping
from typing import Any

LANGUAGE_MODEL = "new:cosyvoice.llm.llm.CosyVoice3LM"
"""What the `llm` of such a configuration is made of; by this the plug-in knows its checkpoints."""

QWEN: Mapping[str, Any] = {
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "vocab_size": 151936,
}

_DILATIONS = [[1, 3, 5]] * 3

YAML: Mapping[str, Any] = {
    "sample_rate": 24000,
    "llm_input_size": 896,
    "llm_output_size": 896,
    "spk_embed_dim": 192,
    "token_frame_rate": 25,
    "token_mel_ratio": 2,
    "chunk_size": 25,
    "llm": {
        "!": LANGUAGE_MODEL,
        "speech_token_size": 6561,
        "sampling": {"top_p": 0.8, "top_k": 25, "win_size": 10, "tau_r": 0.1},
    },
    "flow": {
        "input_size": 80,
        "output_size": 80,
        "spk_embed_dim": "<spk_embed_dim>",
        "vocab_size": 6561,
        "input_frame_rate": "<token_frame_rate>",
        "token_mel_ratio": "<token_mel_ratio>",
        "pre_lookahead_len": 3,
        "pre_lookahead_layer": {"in_channels": 80, "channels": 1024, "pre_lookahead_len": 3},
        "decoder": {
            "spk_emb_dim": 80,
            "cfm_params": {
                "content": {"solver": "euler", "t_scheduler": "cosine", "inference_cfg_rate": 0.7}
            },
            "estimator": {
                "dim": 1024,
                "depth": 22,
                "heads": 16,
                "dim_head": 64,
                "ff_mult": 2,
                "static_chunk_size": "<chunk_size> * <token_mel_ratio>",
            },
        },
    },
    "hift": {
        "in_channels": 80,
        "base_channels": 512,
        "nb_harmonics": 8,
        "sampling_rate": "<sample_rate>",
        "nsf_alpha": 0.1,
        "nsf_sigma": 0.003,
        "nsf_voiced_threshold": 10,
        "upsample_rates": [8, 5, 3],
        "upsample_kernel_sizes": [16, 11, 7],
        "istft_params": {"n_fft": 16, "hop_len": 4},
        "resblock_kernel_sizes": [3, 7, 11],
        "resblock_dilation_sizes": _DILATIONS,
        "source_resblock_kernel_sizes": [7, 7, 11],
        "source_resblock_dilation_sizes": _DILATIONS,
        "lrelu_slope": 0.1,
        "audio_limit": 0.99,
        "conv_pre_look_right": 4,
        "f0_predictor": {"cond_channels": 512},
    },
}


def published() -> Mapping[str, Mapping[str, Any]]:
    """cosyvoice3.yaml by hub id, with the configuration of the Qwen 2 inside as `qwen`."""
    return {"FunAudioLLM/Fun-CosyVoice3-0.5B-2512": {**YAML, "qwen": QWEN}}
