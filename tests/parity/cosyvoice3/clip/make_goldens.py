"""Make the goldens of CosyVoice 3's clip encoder with public references, in their environment.

    python tests/parity/cosyvoice3/clip/make_goldens.py [--venv FOLDER]

Creates a virtual environment (by default in the system's temporary folder), installs the pinned
packages of requirements.txt without their own dependencies, and runs itself again inside, on the
CPU in float32:

- codes by `S3TokenizerV3` of s3tokenizer, which reads our small file by its own loader;
- speaker vectors by onnxruntime, from a small CAM++ (the port in chatterbox-tts) that torch's own
  exporter wrote, and by that port itself; the file is kept as campplus.onnx.xz;
- features by torchaudio (resampling, Kaldi's filter bank, also by kaldi-native-fbank), s3tokenizer
  (Whisper's log-mel) and chatterbox-tts (Matcha's mel spectrogram).

Writes goldens.safetensors and report.json beside it. Nothing here is imported by the server or by
its tests.
"""

import argparse
import importlib.machinery
import importlib.util
import json
import lzma
import subprocess
import sys
import tempfile
import types
import venv
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[3]
CLIPS_S = (1.07, 2.0, 7.03)
GAINS = (1.0, 0.125, 0.5)
SMALL = {"embedding_size": 192, "growth_rate": 2, "bn_size": 4, "init_channels": 8}
PLANES = 4


def build_environment(folder: Path) -> Path:
    """The Python of a virtual environment that holds the references."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    pinned = str(HERE / "requirements.txt")
    install = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "-r", pinned]
    subprocess.run(install, check=True)
    return python


def stub_modules() -> None:
    """torchaudio's native part wants CUDA; what is used of it is plain Python."""
    name = "torchaudio._extension"
    module: Any = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    module.lazy_import_sox_ext = None
    for flag in ("TORCHAUDIO_EXT", "RIR", "ALIGN"):
        setattr(module, f"_IS_{flag}_AVAILABLE", False)
    module.fail_if_no_align = lambda function: function
    sys.modules[name] = module


def from_chatterbox(name: str) -> Any:
    """One module of the package, whose `__init__` would ask for much more."""
    (folder,) = importlib.util.find_spec("chatterbox").submodule_search_locations  # type: ignore
    spec = importlib.util.spec_from_file_location(
        name, Path(folder) / "models" / "s3gen" / f"{name}.py"
    )
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tokenizer(folder: Path) -> Any:
    """The reference's tokenizer with the weights of our small file, all of them."""
    import s3tokenizer.model_v3 as reference
    from s3tokenizer.utils import onnx2torch_v3

    from tests.models.cosyvoice3.clip_checkpoint import SMALL_TOKENIZER, write_onnx

    write_onnx(folder)
    path = folder / "speech_tokenizer_v3.onnx"
    config = reference.ModelConfigV3(
        n_audio_state=SMALL_TOKENIZER.width,
        n_audio_head=SMALL_TOKENIZER.width // 64,
        n_audio_layer=SMALL_TOKENIZER.layers,
    )
    model = reference.S3TokenizerV3("speech_tokenizer_v3", config)
    held = onnx2torch_v3(str(path))
    assert set(held) == set(model.state_dict()), set(held) ^ set(model.state_dict())
    model.init_from_onnx(str(path))
    return model.eval()


def export_speaker(folder: Path) -> tuple[Any, Path]:
    """(the port in torch, the file that torch's exporter makes of it)."""
    import torch

    xvector = from_chatterbox("xvector")
    xvector.FCM.__init__.__defaults__ = (xvector.BasicResBlock, [2, 2], PLANES, 80)
    torch.manual_seed(3)
    model = xvector.CAMPPlus(**SMALL).eval()
    for module in model.modules():
        if isinstance(getattr(module, "running_var", None), torch.Tensor):
            module.running_mean.uniform_(-0.3, 0.3)
            module.running_var.uniform_(0.5, 1.5)
        if isinstance(module, torch.nn.BatchNorm1d | torch.nn.BatchNorm2d) and module.affine:
            module.weight.data.uniform_(0.7, 1.3)
            module.bias.data.uniform_(-0.3, 0.3)
        elif getattr(module, "bias", None) is not None:
            module.bias.data.uniform_(-0.3, 0.3)
    gates = [m for m in model.modules() if isinstance(m, xvector.CAMLayer)]
    for one, other in zip(gates[::2], gates[1::2], strict=True):
        other.linear2.bias.data.copy_(one.linear2.bias.data)  # the exporter stores such once
    path = folder / "campplus.onnx"
    torch.onnx.export(
        model,
        (torch.randn(1, 250, 80),),
        str(path),
        opset_version=14,
        dynamo=False,
        input_names=["input"],
        output_names=["output"],
        dynamic_axes={"input": {0: "B", 1: "T"}, "output": {0: "B"}},
    )
    return model, path


def check_names(path: Path) -> None:
    """Our writer calls nodes and tensors what the exporter calls them."""
    import onnx

    from tests.models.cosyvoice3.clip_checkpoint import SMALL_SPEAKER, speaker_graph

    real = onnx.load(path).graph
    kinds = {"Conv", "BatchNormalization"}
    theirs = {node.name: list(node.input)[1:] for node in real.node if node.op_type in kinds}
    ours = {name: names[1:] for name, _, names in speaker_graph(SMALL_SPEAKER).nodes}
    assert set(theirs) == set(ours), set(theirs) ^ set(ours)
    for name, inputs in theirs.items():
        plain = [n if not n.startswith(("onnx::", "/")) else None for n in inputs]
        mine = [n if not n.startswith("onnx::") else None for n in ours[name]]
        if "dense/nonlinear" in name:
            plain[:2] = mine[:2]  # constants there
        assert plain == mine, (name, inputs, ours[name])


def features(audio: Any, tensors: dict[str, Any], report: dict[str, Any]) -> None:
    """Of the shortest clip [T] at 24 kHz, every kind."""
    import kaldi_native_fbank
    import s3tokenizer
    import torch
    import torchaudio.compliance.kaldi as kaldi
    from torchaudio.functional import resample

    heard = resample(audio, 24000, 16000)
    tensors["heard"] = heard.clone()
    tensors["up"] = resample(heard[:4000], 16000, 24000).clone()
    tensors["whisper"] = s3tokenizer.log_mel_spectrogram(heard).contiguous()
    fbank = kaldi.fbank(heard[None], num_mel_bins=80, dither=0, sample_frequency=16000)
    tensors["fbank"] = fbank.T.contiguous()
    matcha = from_chatterbox("utils/mel")
    tensors["mel"] = matcha.mel_spectrogram(audio, fmax=12000)[0].contiguous()
    options = kaldi_native_fbank.FbankOptions()
    options.frame_opts.dither = 0
    options.mel_opts.num_bins = 80
    native = kaldi_native_fbank.OnlineFbank(options)
    native.accept_waveform(16000, heard.tolist())
    rows = torch.stack([torch.tensor(native.get_frame(i)) for i in range(native.num_frames_ready)])
    report["kaldi_native_fbank_difference"] = float((rows - fbank).abs().max())


def make() -> None:
    """Write the goldens; runs inside the references' environment."""
    sys.path.insert(0, str(ROOT))
    stub_modules()
    import onnxruntime
    import s3tokenizer
    import torch
    import torchaudio.compliance.kaldi as kaldi
    from safetensors.torch import save_file
    from torchaudio.functional import resample

    from tests.parity.qwen3_tts.checkpoint import speech_like

    torch.set_num_threads(1)
    tensors: dict[str, Any] = {}
    report: dict[str, Any] = {"distance_to_next_code": {}, "distinct_codes": {}}
    with tempfile.TemporaryDirectory() as scratch:
        model = tokenizer(Path(scratch))
        project = model.quantizer._codebook.project_down
        seen: list[Any] = []
        project.register_forward_hook(lambda module, inputs, output: seen.append(output))
        port, path = export_speaker(Path(scratch))
        check_names(path)
        (HERE / "campplus.onnx.xz").write_bytes(lzma.compress(path.read_bytes(), preset=9))
        session = onnxruntime.InferenceSession(str(path))
        differences = []
        for seconds, gain in zip(CLIPS_S, GAINS, strict=True):
            audio = torch.from_numpy(speech_like(seconds)) * gain
            heard = resample(audio, 24000, 16000)
            mel = s3tokenizer.log_mel_spectrogram(heard)
            codes, count = model.quantize(mel[None], torch.tensor([mel.shape[1]]))
            assert count.tolist() == [codes.shape[1]]
            tensors[f"clip{seconds}.codes"] = codes[0].to(torch.int16).contiguous()
            scaled = 0.999 * torch.tanh(seen[-1])
            report["distance_to_next_code"][seconds] = float((scaled.abs() - 0.5).abs().min())
            report["distinct_codes"][seconds] = len(set(codes[0].tolist()))
            fbank = kaldi.fbank(heard[None], num_mel_bins=80, dither=0, sample_frequency=16000)
            centred = (fbank - fbank.mean(dim=0, keepdim=True))[None]
            (vector,) = session.run(None, {"input": centred.numpy()})
            tensors[f"clip{seconds}.speaker"] = torch.from_numpy(vector[0])
            with torch.inference_mode():
                differences.append(float((port(centred) - torch.from_numpy(vector)).abs().max()))
        report["port_difference"] = max(differences)
        report["speaker_largest"] = float(abs(vector).max())
        features(torch.from_numpy(speech_like(CLIPS_S[0])), tensors, report)
    print(json.dumps(report, indent=1))
    save_file(tensors, HERE / "goldens.safetensors")
    (HERE / "report.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(tempfile.gettempdir()) / "cosyvoice3-clip-references"
    parser.add_argument("--venv", type=Path, default=default)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        make()
    else:
        python = build_environment(arguments.venv)
        subprocess.run([str(python), str(Path(__file__).resolve()), "--inside"], check=True)
