"""The stages of Higgs Audio v3 at full size on a GPU: time, floors, and how exact they are.

    python benchmarks/higgs_audio_v3_kernels.py [--rows 1 16 64 128 256] [--codec-sms 32]
                                                [--json FILE] [--skip-check] [--small]

Random weights, every row at the same context, captured graphs. Prints a line each for decode steps
(on the fused kernels, with torch's library between them, and the plain path at few rows; on all SMs
and on those that the codec leaves), for sampling alone, prefills, codec chunks (all SMs and the
codec's) and clip encoding, beside the time to read weights and keys and values at 4.6 TB/s; then
the errors of logits against a float32 copy of four layers, of a codec in TF32 against float32, and
whether a replay equals eager. `--small` runs a small model once and times nothing; it works without
a GPU in Triton's interpreter.
"""

import argparse
import copy
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined, so before its import

from voxserve.engine.green_contexts import partition
from voxserve.kernels import tiles
from voxserve.models.higgs_audio_v3.config import HiggsConfig
from voxserve.models.higgs_audio_v3.fused_lm import FusedHiggs
from voxserve.models.higgs_audio_v3.limits import FRAME_BUCKETS, PAGE_UNITS, POOL, spec
from voxserve.models.higgs_audio_v3.lm import HiggsLm
from voxserve.models.higgs_audio_v3.published import published
from voxserve.models.higgs_audio_v3.stages import HiggsModel
from voxserve.models.higgs_audio_v3.weights import load_codec, load_lm
from voxserve.plugin import Checkpoint

MODEL = "bosonai/higgs-tts-3-4b"
READ_BYTES_S = 4.6e12
CONTEXT = 400
GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
KIND = torch.bfloat16 if GPU else torch.float32
State = dict[str, Tensor]
Run = Callable[[], Any]


def configuration(*, small: bool) -> tuple[Checkpoint, HiggsConfig]:
    checkpoint = Checkpoint(MODEL, None, published()[MODEL], dummy=True)
    config = HiggsConfig.read(checkpoint)
    if small:
        sizes = {"hidden": 96, "inner": 64, "layers": 1, "heads": 2, "kv_heads": 1, "head": 32}
        body = replace(config.body, **sizes, codes=1026, text_vocabulary=64)
        codec = replace(config.codec, decoder_width=64, encoder_width=4, latent=16)
        semantic = replace(codec.semantic, hidden=24, inner=32, layers=1, heads=4, place_groups=4)
        codec = replace(codec, semantic=replace(semantic, channels=(16,) * 7))
        config = replace(config, body=body, codec=codec)
    return checkpoint, config


def fresh_state(config: HiggsConfig, slots: int, context: int, kind: torch.dtype) -> State:
    """State of `slots` rows with pages of their own for `context` positions, sampling as usual."""
    pages = -(-context // PAGE_UNITS)
    counts = {"row": slots + 1, "page": slots * pages + 1, "clip": 2}
    state = {
        part.name: torch.zeros(
            counts[part.scope],
            *part.shape,
            device=DEVICE,
            dtype=kind if part.dtype == "model" else getattr(torch, part.dtype),
        )
        for part in spec(config).state
    }
    table = torch.arange(slots * pages, device=DEVICE).view(slots, pages)
    state["lm.pages"].fill_(slots * pages)
    state["lm.pages"][:slots, :pages] = table
    usual = torch.tensor([0.8, 30, 0.8, 1.0, 0.0, 0.0], device=DEVICE)
    state["lm.sampling"].copy_(usual.expand_as(state["lm.sampling"]))
    state["lm.seed"].copy_(torch.arange(slots + 1, device=DEVICE))
    state["lm.codes"].random_(0, config.body.sounds)
    for name, tensor in state.items():
        if name.startswith("lm.kv."):
            tensor.normal_()
    return state


def timed(run: Run, stream: Any, repeats: int = 20) -> tuple[float, list[Any]]:
    """Milliseconds of a replay of `run`'s graph, and what the captured call gave."""
    out: list[Any] = []
    with torch.inference_mode():
        with torch.cuda.stream(stream):
            run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            out.append(run())
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(stream):
            for _ in range(3):
                graph.replay()
            start.record()
            for _ in range(repeats):
                graph.replay()
            end.record()
        torch.cuda.synchronize()
    return start.elapsed_time(end) / repeats, out


def floor_ms(config: HiggsConfig, rows: int, context: int) -> float:
    """Milliseconds to read what a step has to read."""
    body = config.body
    heads = (2 * body.heads + 2 * body.kv_heads) * body.head
    weights = body.layers * body.hidden * (heads + 3 * body.inner)
    weights += body.codebooks * body.codes * body.hidden
    kept = rows * context * body.layers * 2 * body.kv_heads * body.head
    return (weights + kept) * 2 / READ_BYTES_S * 1e3


def say(line: dict[str, Any], into: list[dict[str, Any]]) -> None:
    into.append(line)
    print(json.dumps(line), flush=True)


def decode_lines(
    model: HiggsModel, rows_of: Sequence[int], places: Sequence[tuple[int, Any]], out: list[Any]
) -> None:
    """Every way to run a decode step."""
    config = model.config
    state = fresh_state(config, max(rows_of), CONTEXT + PAGE_UNITS, KIND)
    state["lm.prompt"].fill_(CONTEXT - 100)
    plain = HiggsModel(config, model.lm, model.sound)
    library = HiggsModel(config, model.lm, model.sound, fused=copy.copy(model.fused))
    assert library.fused is not None
    library.fused.library = True
    for rows in rows_of:
        slots = torch.arange(rows, device=DEVICE)
        io = {"slots": slots, "steps": slots * 0 + 100, "inject": (slots * 0 - 1)[:, None]}
        for sms, stream in places:
            for name, way in (("fused", model), ("library", library), ("plain", plain)):
                if name == "plain" and (rows > 16 or sms != places[0][0]):
                    continue
                with tiles.on_sms(sms):
                    ms, _ = timed(partial(way.decode, io, state), stream)
                floor = floor_ms(config, rows, CONTEXT)
                line = {"stage": "decode", "way": name, "rows": rows, "sms": sms}
                say({**line, "ms": round(ms, 3), "over_floor": round(ms / floor, 2)}, out)
        logits = torch.randn(rows, config.body.codebooks, config.body.codes, device=DEVICE)
        for name, way in (("fused", model), ("plain", plain)):
            ms, _ = timed(partial(way._say, logits, slots, io["steps"], state), places[0][1])
            say({"stage": "sampling", "way": name, "rows": rows, "ms": round(ms, 3)}, out)


def prefill_lines(model: HiggsModel, stream: Any, out: list[Any]) -> None:
    state = fresh_state(model.config, 8, 1024, KIND)
    for rows, tokens in ((1, 64), (1, 256), (4, 256), (8, 256), (1, 1024)):
        slots = torch.arange(rows, device=DEVICE)
        ids = torch.zeros(rows, tokens, 2, dtype=torch.int64, device=DEVICE)
        ids[..., 1] = -1
        io = {
            "slots": slots,
            "lengths": slots * 0 + tokens - 3,
            "rows": ids,
            "sampling": state["lm.sampling"][:rows].clone(),
            "seeds": slots,
            "ignore_eos": slots > 1000,
            "clips": slots * 0 + 1,
            f"pages_{POOL}": state["lm.pages"][:rows].clone(),
        }
        ms, _ = timed(partial(model.prefill, io, state), stream, 10)
        say({"stage": "prefill", "rows": rows, "tokens": tokens, "ms": round(ms, 3)}, out)


def codec_lines(model: HiggsModel, places: Sequence[tuple[int, Any]], out: list[Any]) -> None:
    left, right = model.config.context
    for frames in FRAME_BUCKETS:
        for rows in (1, 8, 16):
            window = left + frames + right
            shape = (rows, window, model.config.body.codebooks)
            io = {
                "codes": torch.randint(0, model.config.body.sounds, shape, device=DEVICE),
                "valid": torch.ones(rows, window, dtype=torch.bool, device=DEVICE),
            }
            for sms, stream in places:
                ms, _ = timed(partial(model.codec, io, {}), stream, 10)
                line = {"stage": "codec", "frames": frames, "rows": rows, "sms": sms}
                say({**line, "ms": round(ms, 3)}, out)


def encode_lines(model: HiggsModel, stream: Any, out: list[Any]) -> None:
    state = fresh_state(model.config, 1, PAGE_UNITS, KIND)
    zero = torch.zeros(1, dtype=torch.int64, device=DEVICE)
    for seconds in (5, 10, 30):
        audio = torch.randn(1, seconds * 24_000, device=DEVICE) * 0.1
        io = {"clips": zero, "audio": audio, "lengths": zero + seconds * 24_000 - 777}
        ms, _ = timed(partial(model.encode, io, state), stream, 5)
        say({"stage": "encode", "seconds": seconds, "ms": round(ms, 3)}, out)


def check(config: HiggsConfig, out: list[Any]) -> None:
    """Errors of logits of steps with the same codes for all, four layers deep."""
    config = replace(config, body=replace(config.body, layers=min(4, config.body.layers)))
    checkpoint = Checkpoint(MODEL, None, published()[MODEL], dummy=True)
    lm = load_lm(checkpoint, config, DEVICE, KIND)
    exact: HiggsLm = copy.deepcopy(lm).float()
    rows = 8 if GPU else 2
    for name, way in (("float32", exact), ("plain", lm), ("fused", lm), ("library", lm)):
        fused = None
        if name in ("fused", "library"):
            fused = FusedHiggs(lm, library=name == "library")
        kind = torch.float32 if name == "float32" else KIND
        torch.manual_seed(0)
        state = fresh_state(config, rows, CONTEXT + PAGE_UNITS, kind)
        if name == "float32":
            wanted_state = {n: t.clone() for n, t in state.items()}
        for part, tensor in wanted_state.items():
            state[part].copy_(tensor)
        state["lm.prompt"].fill_(CONTEXT - 100)
        model = HiggsModel(config, way, None, fused=fused)  # type: ignore[arg-type]
        seen: list[Tensor] = []
        real = model._say

        def noted(
            logits: Tensor, *rest: Any, seen: list[Tensor] = seen, real: Any = real
        ) -> Tensor:
            seen.append(logits.clone())
            codes: Tensor = real(logits, *rest)
            return codes

        model._say = noted  # type: ignore[method-assign, assignment]
        slots = torch.arange(rows, device=DEVICE)
        io = {"slots": slots, "steps": slots * 0 + 100, "inject": (slots * 0 - 1)[:, None]}
        model.decode(io, state)
        if name == "float32":
            wanted = seen[0]
            continue
        error = float((seen[0] - wanted).norm() / wanted.norm())
        agree = float((seen[0].argmax(2) == wanted.argmax(2)).float().mean())
        say({"check": name, "error": round(error, 5), "greedy_agreement": round(agree, 3)}, out)


def check_codec(model: HiggsModel, out: list[Any]) -> None:
    """What ten bits of input do to the sound."""
    codes = torch.randint(0, model.config.body.sounds, (2, 45, 8), device=DEVICE)
    real = torch.ones(2, 45, dtype=torch.bool, device=DEVICE)
    sounds = []
    for allowed in (False, True):
        flags = torch.backends.cudnn.flags(enabled=True, allow_tf32=allowed)
        with flags, torch.inference_mode():
            sounds.append(model.sound.decode(codes, real, 10, 10))
    error = float((sounds[1] - sounds[0]).pow(2).mean().sqrt() / sounds[0].pow(2).mean().sqrt())
    say({"check": "codec in TF32", "relative_rms": round(error, 6)}, out)


def replay_equals_eager(model: HiggsModel, stream: Any) -> bool:
    state = fresh_state(model.config, 16, CONTEXT + PAGE_UNITS, KIND)
    state["lm.prompt"].fill_(CONTEXT - 100)
    slots = torch.arange(16, device=DEVICE)
    io = {"slots": slots, "steps": slots * 0 + 100, "inject": (slots * 0 - 1)[:, None]}
    start = state["lm.codes"].clone()
    eager = model.decode(io, state)["codes"].clone()
    state["lm.codes"].copy_(start)

    def again() -> Tensor:
        state["lm.codes"].copy_(start)
        codes: Tensor = model.decode(io, state)["codes"]
        return codes

    _, out = timed(again, stream, 2)
    return torch.equal(out[0], eager)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16, 64, 128, 256])
    parser.add_argument("--codec-sms", type=int, default=32)
    parser.add_argument("--json")
    parser.add_argument("--skip-check", action="store_true")
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()
    lines: list[Any] = []
    checkpoint, config = configuration(small=arguments.small or not GPU)
    if not arguments.skip_check:
        check(config, lines)
    if not GPU:
        return
    torch.backends.cudnn.allow_tf32 = True
    lm = load_lm(checkpoint, config, DEVICE, KIND)
    model = HiggsModel(config, lm, load_codec(checkpoint, config, DEVICE), fused=FusedHiggs(lm))
    parts = partition(torch.cuda.current_device(), arguments.codec_sms)
    whole = parts.whole
    lm_places = [(parts.sms["whole"], whole), (parts.sms["lm"], parts.lm)]
    codec_places = [(parts.sms["whole"], whole), (parts.sms["codec"], parts.codec)]
    check_codec(model, lines)
    say({"check": "replay equals eager", "same": replay_equals_eager(model, whole)}, lines)
    decode_lines(model, arguments.rows, lm_places, lines)
    codec_lines(model, codec_places, lines)
    prefill_lines(model, whole, lines)
    encode_lines(model, whole, lines)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"gpu": torch.cuda.get_device_name(), "lines": lines}, file, indent=1)


if __name__ == "__main__":
    main()
