"""Build a small random Qwen3-TTS checkpoint in the published layout, the same one everywhere.

Runs both inside the reference's environment (make_goldens.py) and in our tests, so it uses numpy,
torch and safetensors only. Every value comes from the raw stream of numpy's PCG64, which numpy
guarantees never to change, turned into floats by exact arithmetic: the files are equal bit by bit
on any machine, and need not be stored. Names and shapes are written out here, independent of the
loader under test; make_goldens.py asserts that the reference accepts exactly these.

Longer than 400 lines: the published names and shapes are one long list.
"""

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

MERGES = Path(__file__).with_name("merges.txt")
EOS_GAIN = 1.45
"""How much larger the end code's output row is, so that random speech ends after some frames."""

Shapes = dict[str, tuple[int, ...]]

SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<tts_pad>",
    "<tts_text_bos>",
    "<tts_text_eod>",
)


def vocabulary() -> tuple[dict[str, int], dict[str, int], str]:
    """(vocab.json, special tokens and their ids, merges.txt) of the small byte-level BPE."""
    merges = [line for line in MERGES.read_text(encoding="utf-8").split("\n") if line]
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in printable]
    letters = [chr(b) for b in printable] + [chr(256 + i) for i in range(len(rest))]
    vocab = {token: i for i, token in enumerate(letters)}
    for merge in merges:
        vocab.setdefault(merge.replace(" ", ""), len(vocab))
    special = {token: len(vocab) + i for i, token in enumerate(SPECIAL)}
    return vocab, special, "#version: 0.2\n" + "\n".join(merges) + "\n"


def model_config(kind: str, size: str) -> dict[str, Any]:
    """config.json of a small model. kind: custom_voice, voice_design or base; size: 1b7 or 0b6.

    As published, the talker of 0b6 is as wide as the code predictor and that of 1b7 wider.
    """
    vocab, special, _ = vocabulary()
    hidden = 48 if size == "1b7" else 32
    languages = {"english": 2050, "chinese": 2055, "french": 2061}
    speakers: dict[str, int] = {}
    dialects: dict[str, bool | str] = {}
    if kind == "custom_voice":
        languages["sichuan_dialect"] = 2062
        speakers = {"vivian": 3065, "ryan": 3061, "eric": 2875}
        dialects = {"vivian": False, "ryan": False, "eric": "sichuan_dialect"}
    attention = {
        "attention_bias": False,
        "hidden_act": "silu",
        "head_dim": 16,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000,
        "sliding_window": None,
        "use_sliding_window": False,
    }
    predictor = {
        **attention,
        "model_type": "qwen3_tts_talker_code_predictor",
        "hidden_size": 32,
        "intermediate_size": 48,
        "vocab_size": 2048,
        "num_code_groups": 16,
        "max_position_embeddings": 64,
        "rope_scaling": None,
        "tie_word_embeddings": False,
        "layer_types": ["full_attention"] * 2,
    }
    talker = {
        **attention,
        "model_type": "qwen3_tts_talker",
        "hidden_size": hidden,
        "intermediate_size": 64,
        "vocab_size": 3072,
        "num_code_groups": 16,
        "text_vocab_size": len(vocab) + len(special),
        "text_hidden_size": 40,
        "max_position_embeddings": 2048,
        "position_id_per_seconds": 13,
        "rope_scaling": {"interleaved": True, "mrope_section": [3, 3, 2], "rope_type": "default"},
        "codec_pad_id": 2148,
        "codec_bos_id": 2149,
        "codec_eos_token_id": 2150,
        "codec_think_id": 2154,
        "codec_nothink_id": 2155,
        "codec_think_bos_id": 2156,
        "codec_think_eos_id": 2157,
        "codec_language_id": languages,
        "spk_id": speakers,
        "spk_is_dialect": dialects,
        "code_predictor_config": predictor,
    }
    config: dict[str, Any] = {
        "architectures": ["Qwen3TTSForConditionalGeneration"],
        "model_type": "qwen3_tts",
        "tokenizer_type": "qwen3_tts_tokenizer_12hz",
        "tts_model_type": kind,
        "tts_model_size": size,
        "im_start_token_id": special["<|im_start|>"],
        "im_end_token_id": special["<|im_end|>"],
        "assistant_token_id": vocab["assistant"],
        "tts_pad_token_id": special["<tts_pad>"],
        "tts_bos_token_id": special["<tts_text_bos>"],
        "tts_eos_token_id": special["<tts_text_eod>"],
        "talker_config": talker,
    }
    if kind == "base":
        config["speaker_encoder_config"] = {
            "enc_dim": hidden,
            "sample_rate": 24000,
            "enc_channels": [16, 16, 16, 16, 48],
            "enc_attention_channels": 8,
            "enc_res2net_scale": 4,
            "enc_se_channels": 8,
        }
    return config


def codec_config() -> dict[str, Any]:
    """speech_tokenizer/config.json of a small codec: the published topology, few channels."""
    decoder = {
        "codebook_size": 2048,
        "codebook_dim": 16,
        "num_quantizers": 16,
        "latent_dim": 24,
        "hidden_size": 16,
        "intermediate_size": 24,
        "head_dim": 8,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "num_hidden_layers": 2,
        "sliding_window": 24,
        "max_position_embeddings": 8000,
        "rope_theta": 10000,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "layer_scale_initial_scale": 0.01,
        "decoder_dim": 48,
        "upsample_rates": [8, 5, 4, 3],
        "upsampling_ratios": [2, 2],
        "num_semantic_quantizers": 1,
        "semantic_codebook_size": 4096,
        "vector_quantization_hidden_dimension": 16,
    }
    encoder = {
        "sampling_rate": 24000,
        "frame_rate": 12.5,
        "_frame_rate": 12.5,
        "audio_channels": 1,
        "hidden_size": 32,
        "num_filters": 4,
        "num_residual_layers": 1,
        "upsampling_ratios": [8, 6, 5, 4],
        "kernel_size": 7,
        "last_kernel_size": 3,
        "residual_kernel_size": 3,
        "dilation_growth_rate": 2,
        "use_causal_conv": True,
        "pad_mode": "constant",
        "compress": 2,
        "codebook_size": 2048,
        "codebook_dim": 16,
        "num_quantizers": 32,
        "num_semantic_quantizers": 1,
        "vector_quantization_hidden_dimension": 16,
        "upsample_groups": 32,
        "num_hidden_layers": 2,
        "intermediate_size": 48,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 8,
        "hidden_act": "gelu",
        "norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "sliding_window": 250,
        "max_position_embeddings": 8000,
        "layer_scale_initial_scale": 0.01,
        "use_conv_shortcut": False,
        "attention_bias": False,
    }
    return {
        "architectures": ["Qwen3TTSTokenizerV2Model"],
        "model_type": "qwen3_tts_tokenizer_12hz",
        "encoder_valid_num_quantizers": 16,
        "input_sample_rate": 24000,
        "output_sample_rate": 24000,
        "decode_upsample_rate": 1920,
        "encode_downsample_rate": 1920,
        "encoder_config": encoder,
        "decoder_config": decoder,
    }


def _decoder_layers(prefix: str, c: dict[str, Any], qk_norm: bool) -> Shapes:
    heads, kv, head = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    hidden, inner = c["hidden_size"], c["intermediate_size"]
    shapes: Shapes = {}
    for layer in range(c["num_hidden_layers"]):
        at = f"{prefix}layers.{layer}."
        shapes |= {
            f"{at}self_attn.q_proj.weight": (heads * head, hidden),
            f"{at}self_attn.k_proj.weight": (kv * head, hidden),
            f"{at}self_attn.v_proj.weight": (kv * head, hidden),
            f"{at}self_attn.o_proj.weight": (hidden, heads * head),
            f"{at}mlp.gate_proj.weight": (inner, hidden),
            f"{at}mlp.up_proj.weight": (inner, hidden),
            f"{at}mlp.down_proj.weight": (hidden, inner),
            f"{at}input_layernorm.weight": (hidden,),
            f"{at}post_attention_layernorm.weight": (hidden,),
        }
        if qk_norm:
            shapes |= {f"{at}self_attn.{n}_norm.weight": (head,) for n in "qk"}
        else:
            shapes |= {f"{at}{n}_layer_scale.scale": (hidden,) for n in ("self_attn", "mlp")}
    return shapes


def model_shapes(config: dict[str, Any]) -> Shapes:
    """Names and shapes of model.safetensors."""
    t = config["talker_config"]
    p = t["code_predictor_config"]
    wide, text, narrow = t["hidden_size"], t["text_hidden_size"], p["hidden_size"]
    shapes: Shapes = {
        "talker.model.text_embedding.weight": (t["text_vocab_size"], text),
        "talker.text_projection.linear_fc1.weight": (text, text),
        "talker.text_projection.linear_fc1.bias": (text,),
        "talker.text_projection.linear_fc2.weight": (wide, text),
        "talker.text_projection.linear_fc2.bias": (wide,),
        "talker.model.codec_embedding.weight": (t["vocab_size"], wide),
        "talker.model.norm.weight": (wide,),
        "talker.codec_head.weight": (t["vocab_size"], wide),
        "talker.code_predictor.model.norm.weight": (narrow,),
    }
    shapes |= _decoder_layers("talker.model.", t, qk_norm=True)
    shapes |= _decoder_layers("talker.code_predictor.model.", p, qk_norm=True)
    for k in range(t["num_code_groups"] - 1):
        at = "talker.code_predictor."
        shapes[f"{at}model.codec_embedding.{k}.weight"] = (p["vocab_size"], wide)
        shapes[f"{at}lm_head.{k}.weight"] = (p["vocab_size"], narrow)
    if wide != narrow:
        shapes["talker.code_predictor.small_to_mtp_projection.weight"] = (narrow, wide)
        shapes["talker.code_predictor.small_to_mtp_projection.bias"] = (narrow,)
    if config["tts_model_type"] == "base":
        shapes |= _speaker_shapes(config["speaker_encoder_config"])
    return shapes


def _speaker_shapes(c: dict[str, Any]) -> Shapes:
    channels, scale = c["enc_channels"], c["enc_res2net_scale"]
    kernels, squeeze, attend = (5, 3, 3, 3, 1), c["enc_se_channels"], c["enc_attention_channels"]
    convs: dict[str, tuple[int, int, int]] = {"blocks.0": (channels[0], 128, kernels[0])}
    for i in (1, 2, 3):
        wide, part = channels[i], channels[i] // scale
        convs[f"blocks.{i}.tdnn1"] = (wide, channels[i - 1], 1)
        for j in range(scale - 1):
            convs[f"blocks.{i}.res2net_block.blocks.{j}"] = (part, part, kernels[i])
        convs[f"blocks.{i}.tdnn2"] = (wide, wide, 1)
        convs[f"blocks.{i}.se_block.conv1"] = (squeeze, wide, 1)
        convs[f"blocks.{i}.se_block.conv2"] = (wide, squeeze, 1)
    last = channels[4]
    convs |= {
        "mfa": (last, last, kernels[4]),
        "asp.tdnn": (attend, 3 * last, 1),
        "asp.conv": (last, attend, 1),
        "fc": (c["enc_dim"], 2 * last, 1),
    }
    shapes: Shapes = {}
    for name, shape in convs.items():
        bare = name in ("fc", "asp.conv") or ".se_block." in name
        at = f"speaker_encoder.{name}" + ("" if bare else ".conv")
        shapes |= {f"{at}.weight": shape, f"{at}.bias": shape[:1]}
    return shapes


def codec_shapes(config: dict[str, Any]) -> Shapes:
    """Names and shapes of speech_tokenizer/model.safetensors, encoder and decoder."""
    return _codec_decoder(config["decoder_config"]) | _codec_encoder(config["encoder_config"])


def _conv(shapes: Shapes, name: str, shape: tuple[int, int, int], bias: int) -> None:
    shapes[f"{name}.weight"] = shape
    if bias:
        shapes[f"{name}.bias"] = (bias,)


def _codec_decoder(c: dict[str, Any]) -> Shapes:
    shapes: Shapes = {}
    code, latent, hidden = c["codebook_dim"], c["latent_dim"], c["hidden_size"]
    for part, count in (("rvq_first", 1), ("rvq_rest", c["num_quantizers"] - 1)):
        at = f"decoder.quantizer.{part}."
        shapes[f"{at}input_proj.weight"] = (code // 2, code, 1)
        shapes[f"{at}output_proj.weight"] = (code, code // 2, 1)
        for n in range(count):
            book = f"{at}vq.layers.{n}._codebook."
            shapes[f"{book}embedding_sum"] = (c["codebook_size"], code // 2)
            shapes[f"{book}cluster_usage"] = (c["codebook_size"],)
    _conv(shapes, "decoder.pre_conv.conv", (latent, code, 3), latent)
    at = "decoder.pre_transformer."
    shapes |= {
        f"{at}input_proj.weight": (hidden, latent),
        f"{at}input_proj.bias": (hidden,),
        f"{at}output_proj.weight": (latent, hidden),
        f"{at}output_proj.bias": (latent,),
        f"{at}norm.weight": (hidden,),
    }
    shapes |= _decoder_layers(at, c, qk_norm=False)
    for u, factor in enumerate(c["upsampling_ratios"]):
        at = f"decoder.upsample.{u}."
        _conv(shapes, f"{at}0.conv", (latent, latent, factor), latent)
        _conv(shapes, f"{at}1.dwconv.conv", (latent, 1, 7), latent)
        shapes |= {
            f"{at}1.norm.weight": (latent,),
            f"{at}1.norm.bias": (latent,),
            f"{at}1.pwconv1.weight": (4 * latent, latent),
            f"{at}1.pwconv1.bias": (4 * latent,),
            f"{at}1.pwconv2.weight": (latent, 4 * latent),
            f"{at}1.pwconv2.bias": (latent,),
            f"{at}1.gamma": (latent,),
        }
    width = c["decoder_dim"]
    _conv(shapes, "decoder.decoder.0.conv", (width, latent, 7), width)
    for b, rate in enumerate(c["upsample_rates"], start=1):
        at = f"decoder.decoder.{b}.block."
        shapes |= {f"{at}0.alpha": (width,), f"{at}0.beta": (width,)}
        _conv(shapes, f"{at}1.conv", (width, width // 2, 2 * rate), width // 2)
        width //= 2
        for unit in (2, 3, 4):
            for act in ("act1", "act2"):
                shapes |= {f"{at}{unit}.{act}.{n}": (width,) for n in ("alpha", "beta")}
            _conv(shapes, f"{at}{unit}.conv1.conv", (width, width, 7), width)
            _conv(shapes, f"{at}{unit}.conv2.conv", (width, width, 1), width)
    shapes |= {"decoder.decoder.5.alpha": (width,), "decoder.decoder.5.beta": (width,)}
    _conv(shapes, "decoder.decoder.6.conv", (1, width, 7), 1)
    return shapes


def _codec_encoder(c: dict[str, Any]) -> Shapes:
    shapes: Shapes = {}
    width, hidden, book = c["num_filters"], c["hidden_size"], c["codebook_dim"]
    _conv(shapes, "encoder.encoder.layers.0.conv", (width, 1, c["kernel_size"]), width)
    layer = 1
    for ratio in reversed(c["upsampling_ratios"]):
        at = f"encoder.encoder.layers.{layer}.block."
        half = width // c["compress"]
        _conv(shapes, f"{at}1.conv", (half, width, c["residual_kernel_size"]), half)
        _conv(shapes, f"{at}3.conv", (width, half, 1), width)
        down = f"encoder.encoder.layers.{layer + 2}.conv"
        _conv(shapes, down, (2 * width, width, 2 * ratio), 2 * width)
        width, layer = 2 * width, layer + 3
    last = f"encoder.encoder.layers.{layer + 1}.conv"
    _conv(shapes, last, (hidden, width, c["last_kernel_size"]), hidden)
    inner, attend = c["intermediate_size"], c["num_attention_heads"] * c["head_dim"]
    for n in range(c["num_hidden_layers"]):
        at = f"encoder.encoder_transformer.layers.{n}."
        shapes |= {f"{at}self_attn.{p}_proj.weight": (attend, hidden) for p in "qkv"}
        shapes |= {
            f"{at}self_attn.o_proj.weight": (hidden, attend),
            f"{at}mlp.fc1.weight": (inner, hidden),
            f"{at}mlp.fc2.weight": (hidden, inner),
            f"{at}self_attn_layer_scale.scale": (hidden,),
            f"{at}mlp_layer_scale.scale": (hidden,),
        }
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes |= {f"{at}{norm}.weight": (hidden,), f"{at}{norm}.bias": (hidden,)}
    _conv(shapes, "encoder.downsample.conv", (hidden, hidden, 4), 0)
    semantic = c["num_semantic_quantizers"]
    for part, count in (("semantic", semantic), ("acoustic", c["num_quantizers"] - semantic)):
        at = f"encoder.quantizer.{part}_residual_vector_quantizer."
        shapes[f"{at}input_proj.weight"] = (book, hidden, 1)
        shapes[f"{at}output_proj.weight"] = (hidden, book, 1)
        for n in range(count):
            shapes |= {
                f"{at}layers.{n}.codebook.embed_sum": (c["codebook_size"], book),
                f"{at}layers.{n}.codebook.cluster_usage": (c["codebook_size"],),
                f"{at}layers.{n}.codebook.initialized": (1,),
            }
    return shapes


def uniform(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """float32 in [-1, 1) of 16 bits each, a function of the name and the size alone."""
    count = int(np.prod(shape))
    raw = np.random.PCG64(zlib.crc32(name.encode())).random_raw((count + 3) // 4)
    values = np.asarray(raw, dtype="<u8").view("<u2")[:count].astype(np.float32)
    scaled: np.ndarray = values / np.float32(32768) - np.float32(1)
    return scaled.reshape(shape)


def tensor(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """The value of one tensor, float32: sizes chosen so that the greedy output is varied."""
    noise = uniform(name, shape)
    last = name.rsplit(".", 1)[-1]
    if last == "initialized":
        noise = np.ones(shape, np.float32)
    elif last == "cluster_usage":
        noise = 1.5 + noise
    elif last == "gamma" or last == "scale":
        noise = 0.5 + 0.25 * noise
    elif last in ("alpha", "beta") or last == "bias":
        noise = 0.25 * noise
    elif name.endswith(("q_norm.weight", "k_norm.weight")):
        noise = 1.8 + 0.5 * noise  # attention that looks at few positions, so that order matters
    elif "norm" in name and last == "weight":
        noise = 1.0 + 0.25 * noise
    elif "embedding" in name or last == "embed_sum" or name.endswith("lm_head.weight"):
        noise = 2.0 * noise
    elif last == "weight":
        inputs = shape[1] * (shape[2] if len(shape) == 3 else 1)
        if name.startswith("decoder.") and ("block.1" in name or "upsample" in name):
            inputs = max(shape[1], shape[0])
        gain = 3.4 if name.startswith("talker.") and "o_proj" in name else 1.7
        noise = noise * np.float32(gain / np.sqrt(inputs))
    if name.startswith("decoder.decoder.") and name.endswith("conv2.conv.weight"):
        noise = np.float32(0.2) * noise
    if name == "decoder.decoder.6.conv.weight":
        noise = np.float32(0.02) * noise
    if name == "talker.codec_head.weight":
        noise[2150] *= np.float32(EOS_GAIN)
    return torch.from_numpy(np.ascontiguousarray(noise, dtype=np.float32))


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1), encoding="utf-8")


def make_checkpoint(folder: Path, kind: str, size: str) -> None:
    """Write a whole model folder. kind: custom_voice, voice_design, base; size: 1b7, 0b6.

    The language model is stored in bfloat16, as published; the codec in float32.
    """
    codec = folder / "speech_tokenizer"
    codec.mkdir(parents=True, exist_ok=True)
    config, sound = model_config(kind, size), codec_config()
    _write_json(folder / "config.json", config)
    _write_json(codec / "config.json", sound)
    extractor = {
        "feature_extractor_type": "EncodecFeatureExtractor",
        "feature_size": 1,
        "sampling_rate": 24000,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": True,
    }
    _write_json(codec / "preprocessor_config.json", extractor)
    generation = {
        "do_sample": True,
        "temperature": 0.9,
        "top_k": 50,
        "top_p": 1.0,
        "repetition_penalty": 1.05,
        "subtalker_dosample": True,
        "subtalker_temperature": 0.9,
        "subtalker_top_k": 50,
        "subtalker_top_p": 1.0,
        "max_new_tokens": 8192,
    }
    _write_json(folder / "generation_config.json", generation)
    vocab, special, merges = vocabulary()
    _write_json(folder / "vocab.json", vocab)
    (folder / "merges.txt").write_text(merges, encoding="utf-8")
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    added = {str(i): {"content": t, "special": True, **flags} for t, i in special.items()}
    tokenizer = {
        "tokenizer_class": "Qwen2Tokenizer",
        "add_prefix_space": False,
        "added_tokens_decoder": added,
        "additional_special_tokens": list(SPECIAL[1:3]),
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "unk_token": None,
        "errors": "replace",
        "model_max_length": 131072,
    }
    _write_json(folder / "tokenizer_config.json", tokenizer)
    weights = {n: tensor(n, s).to(torch.bfloat16) for n, s in model_shapes(config).items()}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    sounds = {n: tensor(n, s) for n, s in codec_shapes(sound).items()}
    save_file(sounds, codec / "model.safetensors", {"format": "pt"})


def speech_like(seconds: float, rate_hz: int = 24000) -> np.ndarray:
    """A reference clip: a buzzing glide with pauses and some noise, float32, 16-bit steps."""
    count = int(seconds * rate_hz)
    t = np.arange(count, dtype=np.float64) / rate_hz
    phase = 2 * np.pi * (140 * t + 30 * np.sin(2 * np.pi * 0.7 * t))
    tone = sum(np.sin(h * phase) / h for h in (1, 2, 3, 5, 8))
    level = np.clip(np.sin(2 * np.pi * 1.3 * t), 0, None) * 0.25
    hiss = uniform(f"clip{count}", (count,)).astype(np.float64) * 0.02
    pcm = np.round((level * tone + hiss) * 16384)
    steps: np.ndarray = np.clip(pcm, -32768, 32767).astype(np.float32)
    return steps / np.float32(32768)
