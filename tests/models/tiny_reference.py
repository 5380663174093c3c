"""Tiny once more, in the plainest form: whole context each step, no cache, no pages, no batch.

Written against the definitions (RMSNorm, rotary positions, attention, SwiGLU, causal convolutions,
Gumbel sampling), sharing nothing with `voxserve.nn`. Arithmetic in the dtype of the weights.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import conv1d, conv_transpose1d, gelu, layer_norm, pad, silu

from voxserve.models.tiny.config import TEXT_END, TEXT_PAD, Body, TinyConfig
from voxserve.requests import Prompt

Weights = dict[str, Tensor]
WORD = 2**64


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight


def turn(x: Tensor, theta: float) -> Tensor:
    """Rotate heads x [T, H, D] at positions 0 … T - 1; the angles are rounded to float32."""
    half = x.shape[-1] // 2
    rates = 1.0 / theta ** (torch.arange(half).float() / half)
    angles = (torch.arange(len(x)).float()[:, None] * rates)[:, None].to(torch.float32)
    low, high = x[..., :half], x[..., half:]
    cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    return torch.cat((low * cosine - high * sine, high * cosine + low * sine), dim=-1)


def layer(x: Tensor, w: Weights, name: str, body: Body, reach: int) -> Tensor:
    """One decoder layer over x [T, hidden]; a position looks at itself and `reach` - 1 before."""
    count = len(x)
    normed = rms(x, w[f"{name}.input_layernorm.weight"], body.eps)
    q, k, v = (
        (normed @ w[f"{name}.self_attn.{part}_proj.weight"].T).view(count, -1, body.head)
        for part in "qkv"
    )
    if f"{name}.self_attn.q_norm.weight" in w:
        q = rms(q, w[f"{name}.self_attn.q_norm.weight"], body.eps)
        k = rms(k, w[f"{name}.self_attn.k_norm.weight"], body.eps)
    q, k = turn(q, body.theta), turn(k, body.theta)
    shared = torch.arange(body.heads) * body.kv_heads // body.heads
    scores = torch.einsum("thd,shd->hts", q, k[:, shared]) / math.sqrt(body.head)
    back = torch.arange(count)[:, None] - torch.arange(count)
    scores[:, (back < 0) | (back >= reach)] = -math.inf
    out = torch.einsum("hts,shd->thd", scores.softmax(-1), v[:, shared])
    mixed = out.flatten(1) @ w[f"{name}.self_attn.o_proj.weight"].T
    x = x + mixed * w.get(f"{name}.self_attn_layer_scale.scale", torch.tensor(1.0))
    normed = rms(x, w[f"{name}.post_attention_layernorm.weight"], body.eps)
    gate, up = (normed @ w[f"{name}.mlp.{part}_proj.weight"].T for part in ("gate", "up"))
    inner = (silu(gate) * up) @ w[f"{name}.mlp.down_proj.weight"].T
    return x + inner * w.get(f"{name}.mlp_layer_scale.scale", torch.tensor(1.0))


def mix(x: int) -> int:
    """The finaliser of splitmix64, on unsigned integers."""
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % WORD
    x = (x ^ x >> 27) * 0x94D049BB133111EB % WORD
    return x ^ x >> 31


def noise(seed: int, step: int, codebook: int, code: int) -> float:
    golden = 0x9E3779B97F4A7C15
    key = mix((mix((seed + golden) % WORD) + step) % WORD)
    bits = mix((key + (codebook * 2**16 + code) * golden) % WORD) >> 41
    return -math.log(-math.log((bits + 0.5) / 2**23))


def choose(logits: Sequence[float], temperature: float, top_k: int, top_p: float) -> list[int]:
    """The codes that may be drawn, likeliest first; a greedy choice leaves one."""
    order = sorted(range(len(logits)), key=lambda code: -logits[code])
    if temperature == 0:
        return order[:1]
    if 0 < top_k < len(order):
        order = [code for code in order if logits[code] >= logits[order[top_k - 1]]]
    weights = [math.exp((logits[code] - logits[order[0]]) / temperature) for code in order]
    if top_p < 1:
        reached, kept = 0.0, 0
        while reached < top_p * sum(weights):
            reached, kept = reached + weights[kept], kept + 1
        order = [code for code in order if logits[code] >= logits[order[kept - 1]]]
    return order


@dataclass
class Speech:
    """codes: one list of K a step. hidden, depth: what the output layers were given, a row each."""

    codes: list[list[int]] = field(default_factory=list)
    hidden: list[Tensor] = field(default_factory=list)
    depth: list[Tensor] = field(default_factory=list)


def speak(
    w: Weights, config: TinyConfig, prompt: Prompt, steps: int, speaker: Tensor | None = None
) -> Speech:
    """The first `steps` steps of a request, whether they go past the end code or not."""
    temperature, top_k, top_p, penalty, min_steps = (float(x) for x in prompt.sampling)
    text, first = w["lm.text.weight"], w["lm.first.weight"]
    rows = [text[a] + first[b] for a, b in prompt.rows.tolist()]
    if speaker is not None:
        rows[1] = rows[1] + speaker
    inject = [row[0] for row in prompt.inject.tolist()]
    speech, said, ended_at = Speech(), set[int](), math.inf

    def draw(logits: Tensor, codebook: int, step: int) -> int:
        values = logits.float().tolist()
        allowed = choose(values, temperature, int(top_k), top_p)
        if len(allowed) == 1:
            return allowed[0]
        drawn = {
            c: values[c] / temperature + noise(prompt.seed, step, codebook, c) for c in allowed
        }
        return max(drawn, key=lambda code: drawn[code])

    for step in range(steps):
        if step > 0:
            fed = inject[step - 1] if step <= len(inject) else TEXT_PAD
            ended_at = step if fed == TEXT_END else ended_at
            last = speech.codes[-1]
            books = [w["lm.depth.books"][k][code] for k, code in enumerate(last[1:])]
            rows.append(text[fed] + first[last[0]] + torch.stack(books).sum(0))
        x = torch.stack(rows)
        for number in range(config.lm.layers):
            x = layer(x, w, f"lm.layers.{number}", config.lm, len(rows))
        hidden = rms(x[-1], w["lm.norm.weight"], config.lm.eps)
        logits = (w["lm.output.weight"] @ hidden).float()
        for code in said:
            logits[code] = logits[code] / penalty if logits[code] > 0 else logits[code] * penalty
        since = max(0.0, step - ended_at)
        logits[config.eos] += config.eos_offset + config.eos_slope * since
        if step < min_steps or prompt.ignore_eos:
            logits[config.eos] = -math.inf
        codes = [draw(logits, 0, step)]
        said.add(codes[0])
        inner = [hidden, first[codes[0]]]
        for book in range(1, config.codebooks):
            x = torch.stack(inner)
            for number in range(config.depth_layers):
                x = layer(x, w, f"lm.depth.layers.{number}", config.lm, len(inner))
            state = rms(x[-1], w["lm.depth.norm.weight"], config.lm.eps)
            codes.append(draw(w["lm.depth.outputs"][book - 1] @ state, book, step))
            inner.append(w["lm.depth.books"][book - 1][codes[-1]])
            speech.depth.append(state)
        speech.codes.append(codes)
        speech.hidden.append(hidden)
    return speech


def decode(w: Weights, config: TinyConfig, codes: np.ndarray) -> Tensor:
    """The audio [samples] of a whole utterance: codes [F, K]."""
    sizes, tensors = config.codec, {k.removeprefix("codec_net."): v for k, v in w.items()}

    def conv(x: Tensor, name: str, dilation: int = 1, groups: int = 1) -> Tensor:
        weight = tensors[f"{name}.conv.weight"]
        x = pad(x, ((weight.shape[2] - 1) * dilation, 0))
        return conv1d(x, weight, tensors[f"{name}.conv.bias"], dilation=dilation, groups=groups)

    def snake(x: Tensor, name: str) -> Tensor:
        alpha, beta = (tensors[f"{name}.{part}"].exp()[:, None] for part in ("alpha", "beta"))
        return x + (x * alpha).sin().square() / (beta + 1e-9)

    def up(x: Tensor, name: str, rate: int) -> Tensor:
        count = x.shape[1] * rate
        bias = tensors[f"{name}.bias"]
        return conv_transpose1d(x, tensors[f"{name}.weight"], bias, stride=rate)[:, :count]

    x = torch.stack([tensors["books"][k, codes[:, k]] for k in range(config.codebooks)]).sum(0)
    x = conv(x.T, "enter").T
    for number in range(sizes.body.layers):
        x = layer(x, tensors, f"layers.{number}", sizes.body, sizes.window)
    x = rms(x, tensors["norm.weight"], sizes.body.eps).T
    for number, factor in enumerate(sizes.upsamplings):
        name = f"upsamplings.{number}"
        x = up(x, f"{name}.up", factor)
        inner = conv(x, f"{name}.mix", groups=len(x)).T
        inner = layer_norm(
            inner, (len(x),), tensors[f"{name}.norm.weight"], tensors[f"{name}.norm.bias"]
        )
        for part, act in (("widen", gelu), ("narrow", lambda y: y)):
            weight, bias = tensors[f"{name}.{part}.weight"], tensors[f"{name}.{part}.bias"]
            inner = act(inner @ weight.T + bias)
        x = x + inner.T
    x = conv(x, "widen")
    for number, rate in enumerate(sizes.rates):
        name = f"blocks.{number}"
        x = up(snake(x, f"{name}.activation"), f"{name}.up.conv", rate)
        for place, dilation in enumerate(sizes.dilations):
            unit = f"{name}.units.{place}"
            inner = conv(snake(x, f"{unit}.before"), f"{unit}.dilated", dilation)
            weight, bias = tensors[f"{unit}.point.weight"], tensors[f"{unit}.point.bias"]
            x = x + conv1d(snake(inner, f"{unit}.between"), weight, bias)
    return conv(snake(x, "activation"), "leave")[0].clamp(-1, 1)
