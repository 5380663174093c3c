"""Make the goldens of CosyVoice 3's flow and vocoder with the public reference.

    python tests/parity/cosyvoice3/codec/make_goldens.py [--venv FOLDER] [--source FOLDER]

Creates a virtual environment and clones FunAudioLLM/CosyVoice with its Matcha-TTS submodule (both
by default in the system's temporary folder), and runs itself again inside. There it builds the
small modules of tests/models/cosyvoice3/sound_checkpoint.py through the reference's own classes,
checks the names and shapes of the published sizes too, and writes goldens.safetensors and
report.json beside it. Nothing here is imported by the server or by its tests.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import types
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[3]
REPOSITORY = "https://github.com/FunAudioLLM/CosyVoice"
COMMIT = "ace7c47f41bbd303aa6bf1ea80e6f9fbd595cd40"
NOISE_S = 10
LONG_FRAMES = 490
FLOW_CASES: dict[str, dict[str, Any]] = {
    "long": {"prompt": 63, "new": 71},
    "short": {"prompt": 38, "new": 7},
}


def build_environment(folder: Path) -> Path:
    """The Python of a virtual environment that holds what the reference imports."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    pinned = str(HERE / "requirements.txt")
    install = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "-r", pinned]
    subprocess.run(install, check=True)
    return python


def clone(folder: Path) -> Path:
    if not (folder / "cosyvoice").exists():
        subprocess.run(["git", "clone", "--quiet", REPOSITORY, str(folder)], check=True)
        subprocess.run(["git", "checkout", "--quiet", COMMIT], cwd=folder, check=True)
        subprocess.run(
            ["git", "submodule", "update", "--init", "--quiet", "third_party/Matcha-TTS"],
            cwd=folder,
            check=True,
        )
    return folder


def stub_modules() -> None:
    """What the two modules import and never use: training, the front end, other decoders."""

    def stub(name: str, **content: Any) -> None:
        module = types.ModuleType(name)
        module.__dict__.update(content)
        sys.modules[name] = module

    stub("torchaudio")
    stub("matcha.utils", __path__=[])
    stub("matcha.utils.pylogger", get_pylogger=lambda name: None)
    stub("matcha.models.components.decoder", Decoder=object)
    stub("cosyvoice.utils.onnx", SpeechTokenExtractor=object, online_feature=False, onnx_path="")
    classes = ("EMB", "SUBSAMPLE", "ATTENTION", "ACTIVATION")
    stub("cosyvoice.utils.class_utils", **{f"COSYVOICE_{name}_CLASSES": {} for name in classes})


def build_flow(config: Any) -> Any:
    from cosyvoice.flow.DiT.dit import DiT
    from cosyvoice.flow.flow import CausalMaskedDiffWithDiT
    from cosyvoice.flow.flow_matching import CausalConditionalCFM
    from cosyvoice.transformer.upsample_encoder import PreLookaheadLayer
    from omegaconf import DictConfig

    solver = {
        "sigma_min": 1e-6,
        "solver": "euler",
        "t_scheduler": "cosine",
        "training_cfg_rate": 0.2,
        "inference_cfg_rate": config.cfg,
        "reg_loss_type": "l1",
    }
    estimator = DiT(
        dim=config.dim,
        depth=config.depth,
        heads=config.heads,
        dim_head=config.head,
        ff_mult=config.ff_mult,
        mel_dim=config.mel,
        mu_dim=config.mel,
        spk_dim=config.mel,
        out_channels=config.mel,
        static_chunk_size=50,
        num_decoding_left_chunks=-1,
    )
    cfm = CausalConditionalCFM(
        in_channels=240,
        n_spks=1,
        spk_emb_dim=80,
        cfm_params=DictConfig(solver),
        estimator=estimator,
    )
    ahead = PreLookaheadLayer(config.mel, config.lookahead_channels, config.lookahead)
    return CausalMaskedDiffWithDiT(
        input_size=config.mel,
        output_size=config.mel,
        spk_embed_dim=config.speaker,
        vocab_size=config.vocabulary,
        input_frame_rate=25,
        token_mel_ratio=2,
        pre_lookahead_len=config.lookahead,
        pre_lookahead_layer=ahead,
        decoder=cfm,
    ).eval()


def build_hift(config: Any) -> Any:
    from cosyvoice.hifigan.f0_predictor import CausalConvRNNF0Predictor
    from cosyvoice.hifigan.generator import CausalHiFTGenerator

    return CausalHiFTGenerator(
        in_channels=config.mel,
        base_channels=config.base,
        nb_harmonics=config.harmonics,
        sampling_rate=config.rate_hz,
        nsf_alpha=config.alpha,
        nsf_sigma=config.sigma,
        nsf_voiced_threshold=config.voiced,
        upsample_rates=list(config.rates),
        upsample_kernel_sizes=list(config.kernels),
        istft_params={"n_fft": config.fft, "hop_len": config.hop},
        resblock_kernel_sizes=list(config.res_kernels),
        resblock_dilation_sizes=[list(d) for d in config.res_dilations],
        source_resblock_kernel_sizes=list(config.source_kernels),
        source_resblock_dilation_sizes=[list(d) for d in config.source_dilations],
        lrelu_slope=config.slope,
        audio_limit=config.limit,
        conv_pre_look_right=config.look_right,
        f0_predictor=CausalConvRNNF0Predictor(1, config.mel, config.f0_channels),
    ).eval()


def check_names(module: Any, shapes: dict[str, tuple[int, ...]]) -> None:
    theirs = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    assert theirs == shapes, set(theirs.items()) ^ set(shapes.items())


def solve(flow: Any, case: str, *, new: int | None = None, double: bool = False) -> Any:
    """Mel frames [F, 80] behind the prompt, block-causal; `new` codes of the case, not the last."""
    import torch

    from tests.models.cosyvoice3.sound_checkpoint import codes, numbers

    prompt, total = FLOW_CASES[case]["prompt"], FLOW_CASES[case]["new"]
    every = codes(case, prompt + total)[None]
    end = prompt + (total if new is None else new)
    kind = torch.float64 if double else torch.float32
    mel, _ = flow.inference(
        token=every[:, prompt:end],
        token_len=torch.tensor([end - prompt]),
        prompt_token=every[:, :prompt],
        prompt_token_len=torch.tensor([prompt]),
        prompt_feat=numbers(f"mel {case}", (1, 2 * prompt, 80), 3.0).to(kind),
        prompt_feat_len=torch.tensor([2 * prompt]),
        embedding=numbers(f"speaker {case}", (1, 192)).to(kind),
        streaming=True,
        finalize=new is None,
    )
    return mel[0].T


def flow_goldens(tensors: dict[str, Any]) -> dict[str, float]:
    from tests.models.cosyvoice3.sound_checkpoint import SMALL_FLOW, flow_shapes, flow_tensors

    flow = build_flow(SMALL_FLOW)
    check_names(flow, flow_shapes(SMALL_FLOW))
    flow.load_state_dict(flow_tensors(SMALL_FLOW))
    for case in FLOW_CASES:
        tensors[f"{case}.mel"] = solve(flow, case).contiguous()
    whole = tensors["long.mel"]
    first = solve(flow, "long", new=15)
    tensors["noise"] = flow.decoder.rand_noise[0, :, [0, 1, 499, 14999]].T.contiguous()
    double = solve(flow.double(), "long", double=True)
    return {
        "mel_rms": float(whole.pow(2).mean().sqrt()),
        "mel_float32_error": float((whole - double).abs().max()),
        "first_chunk_difference": float((first - whole[: len(first)]).abs().max()),
        "first_chunk_frames": len(first),
    }


def widen(hift: Any) -> Any:
    hift.stft_window = hift.stft_window.double()
    return hift.double()


def vocoder_goldens(tensors: dict[str, Any]) -> dict[str, float]:
    """The waves of the flow's golden mel and of a long one, in float32 and in float64."""
    from tests.models.cosyvoice3.sound_checkpoint import (
        SMALL_VOCODER,
        hift_shapes,
        hift_tensors,
        noise_table,
        numbers,
    )

    def build() -> Any:
        hift = build_hift(SMALL_VOCODER)
        check_names(hift, hift_shapes(SMALL_VOCODER))
        hift.load_state_dict(hift_tensors(SMALL_VOCODER))
        hift.m_source.l_sin_gen.sine_waves = noise_table(SMALL_VOCODER, NOISE_S)[None]
        return hift

    mel = tensors["long.mel"].T[None]
    long = numbers("long mel", (1, 80, LONG_FRAMES), 4.0)
    narrow, wide = build(), widen(build())
    wave = narrow.inference(mel)[0][0]
    exact = wide.inference(mel.double())[0][0]
    part = narrow.inference(mel[..., :60], finalize=False)[0][0]
    long_wave = narrow.inference(long)[0][0]
    long_exact = wide.inference(long.double())[0][0]
    f0 = narrow.f0_predictor(mel.double())[0]
    tensors["f0"] = f0.contiguous()
    tensors["wave"] = exact.float().contiguous()
    tensors["wave.float32"] = wave[:9600].contiguous()
    tensors["long.begin"] = long_exact[:4800].float().contiguous()
    tensors["long.end"] = long_exact[-9600:].float().contiguous()
    middle = 240 * 480
    tensors["long.middle"] = long_exact[middle : middle + 4800].float().contiguous()

    def apart(one: Any, other: Any) -> float:
        return float((one - other).abs().max())

    return {
        "wave_rms": float(exact.pow(2).mean().sqrt()),
        "clamped_share": float((exact.abs() >= 0.99).double().mean()),
        "voiced_share": float((f0 > 10).double().mean()),
        "f0_mean_hz": float(f0.mean()),
        "float32_error_0.4s": apart(wave[:9600], exact[:9600]),
        "float32_error_2.8s": apart(wave, exact),
        "float32_error_9.8s": apart(long_wave, long_exact),
        "cut_difference": apart(part, wave[: len(part)]),
        "cut_samples": len(part),
    }


def published(build: Callable[[Any], Any], config: Any, shapes: dict[str, Any]) -> int:
    """Check the published names and shapes; the count of parameters."""
    import torch

    with torch.device("meta"):
        module = build(config)
    check_names(module, shapes)
    return sum(tensor.numel() for tensor in module.state_dict().values())


def make(source: Path) -> None:
    """Write the goldens; runs inside the reference's environment."""
    sys.path[:0] = [str(source), str(source / "third_party" / "Matcha-TTS"), str(ROOT)]
    stub_modules()
    import torch
    from safetensors.torch import save_file

    from tests.models.cosyvoice3.sound_checkpoint import flow_shapes, hift_shapes
    from voxserve.models.cosyvoice3.config import FlowConfig, VocoderConfig

    torch.set_num_threads(1)
    tensors: dict[str, Any] = {}
    with torch.inference_mode():
        report: dict[str, Any] = {"flow": flow_goldens(tensors)}
        report["vocoder"] = vocoder_goldens(tensors)
    flow = FlowConfig()
    report["flow"]["published_parameters"] = published(build_flow, flow, flow_shapes(flow))
    vocoder = build_hift(VocoderConfig())
    check_names(vocoder, hift_shapes(VocoderConfig()))
    report["cases"] = FLOW_CASES
    save_file(tensors, HERE / "goldens.safetensors")
    text = json.dumps(report, indent=1)
    print(text)
    (HERE / "report.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    scratch = Path(tempfile.gettempdir())
    parser.add_argument("--venv", type=Path, default=scratch / "cosyvoice3-reference")
    parser.add_argument("--source", type=Path, default=scratch / "cosyvoice3-source")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        make(arguments.source)
    else:
        python = build_environment(arguments.venv)
        source = clone(arguments.source)
        script = str(Path(__file__).resolve())
        inside = [str(python), script, "--inside", "--source", str(source)]
        subprocess.run(inside, check=True)
