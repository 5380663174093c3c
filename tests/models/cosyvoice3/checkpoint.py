"""Write a random CosyVoice 3 checkpoint in the published layout, small or of full size.

Runs in our tests and in the environments of the references. Names and shapes of llm.pt are written
out here, independent of the loader under test. Every value is a function of its name and shape.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.models.cosyvoice3.clip_checkpoint import SpeakerShape, TokenizerShape, write_onnx
from tests.models.cosyvoice3.sound_checkpoint import (
    SMALL_FLOW,
    SMALL_VOCODER,
    flow_tensors,
    hift_tensors,
)
from tests.parity.qwen3_tts.checkpoint import uniform, vocabulary
from voxserve.models.cosyvoice3.config import FlowConfig, VocoderConfig
from voxserve.models.cosyvoice3.published import QWEN as PUBLISHED_QWEN

QWEN: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "vocab_size": 151936,
    "max_position_embeddings": 32768,
    "hidden_act": "silu",
    "use_sliding_window": False,
    "tie_word_embeddings": True,
}
CODES = 6561
SPEECH_IDS = CODES + 200
END = CODES + 1
END_GAIN = 1.5
"""How much larger the end code's output row is, so that random speech ends after some codes."""
OWN_MARKS = {151643: "<|endoftext|>", 151644: "<|im_start|>", 151645: "<|im_end|>"}


def yaml(qwen: Mapping[str, Any], flow: FlowConfig, vocoder: VocoderConfig) -> str:
    """cosyvoice3.yaml, as far as it tells sizes."""
    return f"""# A random CosyVoice 3.
__set_seed: !apply:torch.manual_seed [1986]
sample_rate: 24000
llm_input_size: {qwen["hidden_size"]}
llm_output_size: {qwen["hidden_size"]}
spk_embed_dim: 192
qwen_pretrain_path: ''
token_frame_rate: 25
token_mel_ratio: 2
chunk_size: 25
num_decoding_left_chunks: -1
llm: !new:cosyvoice.llm.llm.CosyVoice3LM
    llm_input_size: !ref <llm_input_size>
    llm_output_size: !ref <llm_output_size>
    speech_token_size: {CODES}
    mix_ratio: [5, 15]
    llm: !new:cosyvoice.llm.llm.Qwen2Encoder
        pretrain_path: !ref <qwen_pretrain_path>
    sampling: !name:cosyvoice.utils.common.ras_sampling
        top_p: 0.8
        top_k: 25
        win_size: 10
        tau_r: 0.1
flow: !new:cosyvoice.flow.flow.CausalMaskedDiffWithDiT
    input_size: 80
    output_size: 80
    spk_embed_dim: !ref <spk_embed_dim>
    vocab_size: {CODES}
    input_frame_rate: !ref <token_frame_rate>
    token_mel_ratio: !ref <token_mel_ratio>
    pre_lookahead_len: 3
    pre_lookahead_layer: !new:cosyvoice.transformer.upsample_encoder.PreLookaheadLayer
        in_channels: 80
        channels: {flow.lookahead_channels}
        pre_lookahead_len: 3
    decoder: !new:cosyvoice.flow.flow_matching.CausalConditionalCFM
        in_channels: 240
        spk_emb_dim: 80
        cfm_params: !new:omegaconf.DictConfig
            content:
                solver: 'euler'
                t_scheduler: 'cosine'
                inference_cfg_rate: 0.7
        estimator: !new:cosyvoice.flow.DiT.dit.DiT
            dim: {flow.dim}
            depth: {flow.depth}
            heads: {flow.heads}
            dim_head: {flow.head}
            ff_mult: {flow.ff_mult}
            static_chunk_size: !ref <chunk_size> * <token_mel_ratio>
hift: !new:cosyvoice.hifigan.generator.CausalHiFTGenerator
    in_channels: 80
    base_channels: {vocoder.base}
    nb_harmonics: 8
    sampling_rate: !ref <sample_rate>
    nsf_alpha: 0.1
    nsf_sigma: 0.003
    nsf_voiced_threshold: 10
    upsample_rates: [8, 5, 3]
    upsample_kernel_sizes: [16, 11, 7]
    istft_params:
        n_fft: 16
        hop_len: 4
    resblock_kernel_sizes: [3, 7, 11]
    resblock_dilation_sizes: [[1, 3, 5], [1, 3, 5], [1, 3, 5]]
    source_resblock_kernel_sizes: [7, 7, 11]
    source_resblock_dilation_sizes: [[1, 3, 5], [1, 3, 5], [1, 3, 5]]
    lrelu_slope: 0.1
    audio_limit: 0.99
    conv_pre_look_right: 4
    f0_predictor: !new:cosyvoice.hifigan.f0_predictor.CausalConvRNNF0Predictor
        cond_channels: {vocoder.f0_channels}
"""


def lm_shapes(qwen: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The tensors of llm.pt."""
    hidden, inner = qwen["hidden_size"], qwen["intermediate_size"]
    head = hidden // qwen["num_attention_heads"]
    keys = qwen["num_key_value_heads"] * head
    at = "llm.model.model."
    shapes: dict[str, tuple[int, ...]] = {f"{at}embed_tokens.weight": (qwen["vocab_size"], hidden)}
    for layer in range(qwen["num_hidden_layers"]):
        block = f"{at}layers.{layer}."
        for part, size in (("q", hidden), ("k", keys), ("v", keys)):
            shapes[f"{block}self_attn.{part}_proj.weight"] = (size, hidden)
            shapes[f"{block}self_attn.{part}_proj.bias"] = (size,)
        shapes[f"{block}self_attn.o_proj.weight"] = (hidden, hidden)
        shapes[f"{block}mlp.gate_proj.weight"] = (inner, hidden)
        shapes[f"{block}mlp.up_proj.weight"] = (inner, hidden)
        shapes[f"{block}mlp.down_proj.weight"] = (hidden, inner)
        shapes[f"{block}input_layernorm.weight"] = (hidden,)
        shapes[f"{block}post_attention_layernorm.weight"] = (hidden,)
    shapes[f"{at}norm.weight"] = (hidden,)
    shapes["llm.model.lm_head.weight"] = (qwen["vocab_size"], hidden)
    shapes["speech_embedding.weight"] = (SPEECH_IDS, hidden)
    shapes["llm_decoder.weight"] = (SPEECH_IDS, hidden)
    return shapes


def lm_tensors(qwen: Mapping[str, Any] = QWEN) -> dict[str, torch.Tensor]:
    """llm.pt, float32; the head over text is the text's table, as published."""
    tensors: dict[str, torch.Tensor] = {}
    for name, shape in lm_shapes(qwen).items():
        if name == "llm.model.lm_head.weight":
            tensors[name] = tensors["llm.model.model.embed_tokens.weight"]
            continue
        noise = uniform(f"llm {name}", shape)
        if name.endswith("norm.weight"):
            noise = 1.0 + 0.25 * noise
        elif name.endswith("bias"):
            noise = 0.05 * noise
        else:
            gain = 3.4 if "q_proj" in name or "o_proj" in name else 0.85 if "mlp" in name else 1.7
            noise = noise * np.float32(gain / np.sqrt(shape[1]))
        if name == "llm_decoder.weight":
            noise[END] *= np.float32(END_GAIN)
        tensors[name] = torch.from_numpy(np.ascontiguousarray(noise, np.float32))
    return tensors


def write_tokenizer(folder: Path, qwen: Mapping[str, Any] = QWEN) -> None:
    """The Qwen 2 folder: its configuration and a small byte-level BPE with the published marks."""
    folder.mkdir(parents=True, exist_ok=True)
    words, _, merges = vocabulary()
    for number in range(len(words), min(OWN_MARKS)):
        words[f"unused{number}"] = number  # so that the marks have their published ids
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    added = {str(i): {"content": t, "special": True, **flags} for i, t in OWN_MARKS.items()}
    tokenizer = {
        "tokenizer_class": "Qwen2Tokenizer",
        "add_prefix_space": False,
        "added_tokens_decoder": added,
        "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
        "eos_token": "<|endoftext|>",
        "pad_token": "<|endoftext|>",
        "unk_token": None,
        "errors": "replace",
        "model_max_length": 32768,
    }
    files = {"config.json": qwen, "vocab.json": words, "tokenizer_config.json": tokenizer}
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
    (folder / "merges.txt").write_text(merges, encoding="utf-8")


def make_checkpoint(folder: Path) -> None:
    """Write the whole folder, small."""
    write_tokenizer(folder / "CosyVoice-BlankEN")
    text = yaml(QWEN, SMALL_FLOW, SMALL_VOCODER)
    (folder / "cosyvoice3.yaml").write_text(text, encoding="utf-8")
    torch.save(lm_tensors(), folder / "llm.pt")
    torch.save(flow_tensors(SMALL_FLOW), folder / "flow.pt")
    torch.save(hift_tensors(SMALL_VOCODER), folder / "hift.pt")
    write_onnx(folder)


def make_full_checkpoint(folder: Path) -> None:
    """The same in the published sizes, 3.2 GB; llm.pt, flow.pt and hift.pt in bfloat16."""
    qwen, flow, vocoder = {**QWEN, **PUBLISHED_QWEN}, FlowConfig(), VocoderConfig()
    write_tokenizer(folder / "CosyVoice-BlankEN", qwen)
    (folder / "cosyvoice3.yaml").write_text(yaml(qwen, flow, vocoder), encoding="utf-8")
    made = {"flow.pt": flow_tensors(flow), "hift.pt": hift_tensors(vocoder)}
    for name, tensors in {**made, "llm.pt": lm_tensors(qwen)}.items():
        torch.save({n: t.to(torch.bfloat16) for n, t in tensors.items()}, folder / name)
    write_onnx(folder, TokenizerShape(), SpeakerShape())
