"""Build a small random Higgs Audio v3 checkpoint in the published layout, the same one everywhere.

Runs both in the reference's environment (make_goldens.py) and in our tests. Values come from the
same exact streams as those of Qwen3-TTS, so that nothing has to be stored. Names and shapes are
written out here, independent of the loader under test; make_goldens.py asserts that the reference
accepts exactly these.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from tests.parity.qwen3_tts.checkpoint import speech_like, uniform, vocabulary

__all__ = ["make_checkpoint", "model_config", "speech_like", "tokenizer", "uniform"]

HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, HEAD = 64, 96, 3, 4, 2, 16
BOOKS, CODES = 8, 1026
EMBEDDINGS = "tied.embedding.modality_embeddings.0"
END_GAIN = 1.8
"""How much larger the first codebook's end code is, so that random speech ends after a while."""

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How Qwen 2 cuts a text into words."""

SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|tts|>",
    "<|text|>",
    "<|audio|>",
    "<|ref_audio|>",
    "<|ref_text|>",
    "<|emotion:happy|>",
    "<|prosody:slow|>",
    "<|sfx:laughter|>",
)

Shapes = dict[str, tuple[int, ...]]


def tokenizer() -> dict[str, Any]:
    """tokenizer.json: a byte-level BPE of the kind that Qwen 2 has, with the model's own tokens."""
    vocab, _, merges = vocabulary()
    added = [
        {
            "id": len(vocab) + place,
            "content": content,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for place, content in enumerate(SPECIAL)
    ]
    split = {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated"}
    letters = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [split | {"invert": False}, letters | {"use_regex": False}],
        },
        "post_processor": None,
        "decoder": {**letters, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": vocab,
            "merges": [line.split(" ") for line in merges.split("\n")[1:] if line],
        },
    }


def codec_config() -> dict[str, Any]:
    """The codec in the names of transformers: the published topology, few channels."""
    return {
        "model_type": "higgs_audio_v2_tokenizer",
        "sample_rate": 24000,
        "semantic_sample_rate": 16000,
        "downsample_factor": 320,
        "target_bandwidths": [0.5, 1, 1.5, 2],
        "codebook_size": 1024,
        "codebook_dim": 8,
        "kernel_size": 3,
        "unit_kernel_size": 3,
        "block_dilations": [1, 1],
        "channel_ratios": [1, 1],
        "strides": [1, 1],
        "acoustic_model_config": {
            "model_type": "dac",
            "encoder_hidden_size": 4,
            "decoder_hidden_size": 64,
            "hidden_size": 16,
            "downsampling_ratios": [8, 5, 4, 2, 3],
            "upsampling_ratios": [8, 5, 4, 2, 3],
            "hop_length": 960,
        },
        "semantic_model_config": {
            "model_type": "hubert",
            "hidden_size": 24,
            "intermediate_size": 40,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "layer_norm_eps": 1e-5,
            "conv_dim": [16] * 7,
            "conv_kernel": [10, 3, 3, 3, 3, 2, 2],
            "conv_stride": [5, 2, 2, 2, 2, 2, 2],
            "conv_bias": False,
            "do_stable_layer_norm": False,
            "feat_extract_norm": "group",
            "feat_extract_activation": "gelu",
            "feat_proj_layer_norm": True,
            "hidden_act": "gelu",
            "num_conv_pos_embeddings": 16,
            "num_conv_pos_embedding_groups": 4,
            "mask_time_prob": 0.05,
        },
    }


def model_config() -> dict[str, Any]:
    """config.json; `codec_config` is the one field that the published file does not have."""
    return {
        "architectures": ["HiggsMultimodalQwen3ForConditionalGeneration"],
        "model_type": "higgs_multimodal_qwen3",
        "audio_token_id": -100,
        "mel_per_sample": 8,
        "text_config": {
            "model_type": "qwen3",
            "attention_bias": False,
            "head_dim": HEAD,
            "hidden_act": "silu",
            "hidden_size": HIDDEN,
            "intermediate_size": INNER,
            "max_position_embeddings": 4096,
            "num_attention_heads": HEADS,
            "num_hidden_layers": LAYERS,
            "num_key_value_heads": KV_HEADS,
            "rms_norm_eps": 1e-6,
            "rope_theta": None,
            "sliding_window": None,
            "use_sliding_window": False,
            "vocab_size": text_vocabulary(),
        },
        "audio_encoder_config": {
            "encoder_type": "discrete",
            "num_codebooks": BOOKS,
            "vocab_size": CODES,
            "tie_word_embeddings": True,
            "codec_config": codec_config(),
        },
    }


def text_vocabulary() -> int:
    return len(vocabulary()[0]) + len(SPECIAL)


def body_shapes() -> Shapes:
    """The Qwen 3 stack, under `body.`."""
    shapes: Shapes = {"norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        at = f"layers.{layer}."
        shapes |= {
            f"{at}self_attn.q_proj.weight": (HEADS * HEAD, HIDDEN),
            f"{at}self_attn.k_proj.weight": (KV_HEADS * HEAD, HIDDEN),
            f"{at}self_attn.v_proj.weight": (KV_HEADS * HEAD, HIDDEN),
            f"{at}self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD),
            f"{at}self_attn.q_norm.weight": (HEAD,),
            f"{at}self_attn.k_norm.weight": (HEAD,),
            f"{at}mlp.gate_proj.weight": (INNER, HIDDEN),
            f"{at}mlp.up_proj.weight": (INNER, HIDDEN),
            f"{at}mlp.down_proj.weight": (HIDDEN, INNER),
            f"{at}input_layernorm.weight": (HIDDEN,),
            f"{at}post_attention_layernorm.weight": (HIDDEN,),
        }
    return shapes


def codec_shapes() -> Shapes:
    """The codec, under `tied.embedding.modality_embeddings.0.model.`."""
    config = codec_config()
    dac, hubert = config["acoustic_model_config"], config["semantic_model_config"]
    latent, wide = dac["hidden_size"], hubert["hidden_size"]
    hidden, small, codes = latent + wide, config["codebook_dim"], config["codebook_size"]
    shapes: Shapes = {"semantic_model.masked_spec_embed": (wide,)}
    for name, rows in (("fc", hidden), ("fc1", wide), ("fc2", latent)):
        shapes |= {f"{name}.weight": (rows, hidden), f"{name}.bias": (rows,)}
    for book in range(BOOKS):
        at = f"quantizer.quantizers.{book}."
        shapes |= {
            f"{at}codebook.inited": (1,),
            f"{at}codebook.cluster_size": (codes,),
            f"{at}codebook.embed": (codes, small),
            f"{at}codebook.embed_avg": (codes, small),
            f"{at}project_in.weight": (small, hidden),
            f"{at}project_in.bias": (small,),
            f"{at}project_out.weight": (hidden, small),
            f"{at}project_out.bias": (hidden,),
        }
    shapes |= _decoder_shapes(dac) | _encoder_shapes(dac) | _hubert_shapes(hubert)
    for side, first, last in (("encoder", "conv", ""), ("decoder", "conv1", "conv2")):
        at = f"{side}_semantic."
        shapes[f"{at}{first}.weight"] = (wide, wide, 3)
        if last:
            shapes[f"{at}{last}.weight"] = (wide, wide, 3)
        for block in range(2):
            part = f"{at}conv_blocks.{block}."
            shapes |= {f"{part}conv.weight": (wide, wide, 3), f"{part}conv.bias": (wide,)}
            for unit in range(2):
                shapes[f"{part}res_units.{unit}.conv1.weight"] = (wide, wide, 3)
                shapes[f"{part}res_units.{unit}.conv2.weight"] = (wide, wide, 1)
    return shapes


def _conv(name: str, out: int, into: int, kernel: int) -> Shapes:
    return {f"{name}.weight": (out, into, kernel), f"{name}.bias": (out,)}


def _unit_shapes(at: str, width: int) -> Shapes:
    shapes: Shapes = {}
    for unit in (1, 2, 3):
        part = f"{at}res_unit{unit}."
        shapes |= {f"{part}snake1.alpha": (1, width, 1), f"{part}snake2.alpha": (1, width, 1)}
        shapes |= _conv(f"{part}conv1", width, width, 7) | _conv(f"{part}conv2", width, width, 1)
    return shapes


def _decoder_shapes(dac: dict[str, Any]) -> Shapes:
    at, width = "acoustic_decoder.", dac["decoder_hidden_size"]
    shapes = _conv(f"{at}conv1", width, dac["hidden_size"], 7)
    for block, rate in enumerate(dac["upsampling_ratios"]):
        part, half = f"{at}block.{block}.", width // 2
        shapes |= {
            f"{part}snake1.alpha": (1, width, 1),
            f"{part}conv_t1.weight": (width, half, 2 * rate),
            f"{part}conv_t1.bias": (half,),
        }
        shapes |= _unit_shapes(part, half)
        width = half
    return shapes | {f"{at}snake1.alpha": (1, width, 1)} | _conv(f"{at}conv2", 1, width, 7)


def _encoder_shapes(dac: dict[str, Any]) -> Shapes:
    at, width = "acoustic_encoder.", dac["encoder_hidden_size"]
    shapes = _conv(f"{at}conv1", width, 1, 7)
    for block, rate in enumerate(dac["downsampling_ratios"]):
        part = f"{at}block.{block}."
        shapes |= _unit_shapes(part, width) | {f"{part}snake1.alpha": (1, width, 1)}
        shapes |= _conv(f"{part}conv1", 2 * width, width, 2 * rate)
        width *= 2
    latent = dac["hidden_size"]
    return shapes | {f"{at}snake1.alpha": (1, width, 1)} | _conv(f"{at}conv2", latent, width, 3)


def _hubert_shapes(hubert: dict[str, Any]) -> Shapes:
    at, wide, inner = "semantic_model.", hubert["hidden_size"], hubert["intermediate_size"]
    inputs, shapes = 1, Shapes()
    for place, (width, kernel) in enumerate(
        zip(hubert["conv_dim"], hubert["conv_kernel"], strict=True)
    ):
        shapes[f"{at}feature_extractor.conv_layers.{place}.conv.weight"] = (width, inputs, kernel)
        inputs = width
    norm = f"{at}feature_extractor.conv_layers.0.layer_norm."
    shapes |= {f"{norm}weight": (hubert["conv_dim"][0],), f"{norm}bias": (hubert["conv_dim"][0],)}
    part = f"{at}feature_projection."
    shapes |= {f"{part}layer_norm.weight": (inputs,), f"{part}layer_norm.bias": (inputs,)}
    shapes |= {f"{part}projection.weight": (wide, inputs), f"{part}projection.bias": (wide,)}
    place_conv, kernel = f"{at}encoder.pos_conv_embed.conv.", hubert["num_conv_pos_embeddings"]
    groups = hubert["num_conv_pos_embedding_groups"]
    shapes |= {
        f"{place_conv}bias": (wide,),
        f"{place_conv}parametrizations.weight.original0": (1, 1, kernel),
        f"{place_conv}parametrizations.weight.original1": (wide, wide // groups, kernel),
        f"{at}encoder.layer_norm.weight": (wide,),
        f"{at}encoder.layer_norm.bias": (wide,),
    }
    for layer in range(hubert["num_hidden_layers"]):
        part = f"{at}encoder.layers.{layer}."
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            shapes |= {f"{part}attention.{name}.weight": (wide, wide)}
            shapes |= {f"{part}attention.{name}.bias": (wide,)}
        for name in ("layer_norm", "final_layer_norm"):
            shapes |= {f"{part}{name}.weight": (wide,), f"{part}{name}.bias": (wide,)}
        dense = f"{part}feed_forward."
        shapes |= {f"{dense}intermediate_dense.weight": (inner, wide)}
        shapes |= {f"{dense}intermediate_dense.bias": (inner,)}
        shapes |= {f"{dense}output_dense.weight": (wide, inner)}
        shapes |= {f"{dense}output_dense.bias": (wide,)}
    return shapes


def model_shapes() -> Shapes:
    """Every tensor of model.safetensors."""
    shapes = {f"body.{name}": shape for name, shape in body_shapes().items()}
    text, codes = (text_vocabulary(), HIDDEN), (BOOKS * CODES, HIDDEN)
    shapes |= {
        "tied.embedding.text_embedding.weight": text,
        "tied.head.text_head.weight": text,
        f"{EMBEDDINGS}.embedding.weight": codes,
        "tied.head.modality_heads.0.weight": codes,
    }
    return shapes | {f"{EMBEDDINGS}.model.{n}": shape for n, shape in codec_shapes().items()}


def tensor(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """The value of one tensor, bfloat16: sizes chosen so that the greedy output is varied."""
    name = name.replace("tied.head.modality_heads.0.", f"{EMBEDDINGS}.embedding.")
    noise, last = uniform(name, shape), name.rsplit(".", 1)[-1]
    if last == "alpha":
        noise = 1.0 + 0.5 * noise
    elif last == "bias" or last == "original0":
        noise = 0.25 * noise + (last == "original0")
    elif name.endswith(("q_norm.weight", "k_norm.weight")):
        noise = 1.8 + 0.5 * noise  # attention that looks at few positions, so that order matters
    elif "norm" in name and last == "weight":
        noise = 1.0 + 0.25 * noise
    elif last == "embed_avg":
        noise = 4.5 * noise
    elif name.endswith("embedding.weight"):
        noise = np.float32(0.15) * noise  # small: tied, large ones would only say what they heard
    elif last in ("weight", "original1"):
        inputs = shape[1] * (shape[2] if len(shape) == 3 else 1)
        if "conv_t1" in name:
            inputs = 2 * shape[0]
        gain = 3.4 if "o_proj" in name else 1.7
        noise = noise * np.float32(gain / np.sqrt(inputs))
    if ".res_unit" in name and name.endswith("conv2.weight"):
        noise = np.float32(0.3) * noise
    if name.endswith("acoustic_decoder.conv2.weight"):
        noise = np.float32(0.1) * noise
    if name == f"{EMBEDDINGS}.embedding.weight":
        noise[CODES - 1] *= np.float32(END_GAIN)
    return torch.from_numpy(np.ascontiguousarray(noise, dtype=np.float32)).bfloat16()


def make_checkpoint(folder: Path) -> None:
    """Write a whole model folder, as published: one file, an index beside it, all in bfloat16."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor(name, shape) for name, shape in model_shapes().items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    size = sum(value.numel() * 2 for value in tensors.values())
    index = {
        "metadata": {"total_size": size},
        "weight_map": dict.fromkeys(sorted(tensors), "model.safetensors"),
    }
    settings = {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>"}
    for name, content in (
        ("model.safetensors.index.json", index),
        ("config.json", model_config()),
        ("tokenizer.json", tokenizer()),
        ("tokenizer_config.json", settings),
    ):
        text = json.dumps(content, ensure_ascii=False, indent=1)
        (folder / name).write_text(text + "\n", encoding="utf-8")
