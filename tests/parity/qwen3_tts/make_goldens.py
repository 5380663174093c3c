"""Make the goldens of Qwen3-TTS with its public reference, in an environment of its own.

    python tests/parity/qwen3_tts/make_goldens.py [--venv FOLDER]

Creates a virtual environment (by default in the system's temporary folder), installs the pinned
packages of requirements.txt without their own dependencies, and runs itself again inside. There it
builds the small checkpoints of checkpoint.py, speaks every case greedily in float32 on the CPU
through the reference's public classes, and writes cases.json and goldens.safetensors beside it.
Nothing here is imported by the server or by its tests.
"""

import argparse
import importlib.machinery
import json
import subprocess
import sys
import tempfile
import types
import venv
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
GREEDY: dict[str, Any] = {"do_sample": False, "subtalker_dosample": False, "max_new_tokens": 36}
TEXT = "Hello there! The news is read aloud."
LONG = "Speech arrives in small pieces, and the pieces may be cut anywhere: inside a word."
CHINESE = "你好，世界。今天天气很好。"
INSTRUCT = "Speak slowly, in a warm voice."
TRANSCRIPT = "The quick brown fox."

CASES: list[dict[str, Any]] = [
    {"model": "custom_voice-1b7", "text": TEXT, "speaker": "vivian"},
    {"model": "custom_voice-1b7", "text": TEXT, "speaker": "Vivian", "streamed": True},
    {"model": "custom_voice-1b7", "text": LONG, "speaker": "ryan", "language": "English"},
    {
        "model": "custom_voice-1b7",
        "text": LONG,
        "speaker": "ryan",
        "language": "english",
        "streamed": True,
    },
    {"model": "custom_voice-1b7", "text": CHINESE, "speaker": "eric"},
    {"model": "custom_voice-1b7", "text": CHINESE, "speaker": "eric", "language": "chinese"},
    {"model": "custom_voice-1b7", "text": TEXT, "speaker": "eric", "language": "english"},
    {"model": "custom_voice-1b7", "text": CHINESE, "speaker": "eric", "streamed": True},
    {"model": "custom_voice-1b7", "text": TEXT, "speaker": "ryan", "instruct": INSTRUCT},
    {
        "model": "custom_voice-1b7",
        "text": TEXT,
        "speaker": "ryan",
        "instruct": INSTRUCT,
        "language": "french",
        "streamed": True,
    },
    {"model": "custom_voice-1b7", "text": "a", "speaker": "ryan", "streamed": True},
    {"model": "custom_voice-1b7", "text": "a", "speaker": "ryan"},
    {
        "model": "custom_voice-0b6",
        "text": LONG,
        "speaker": "ryan",
        "repetition_penalty": 1.5,
        "max_new_tokens": 60,
        "streamed": True,
    },
    {"model": "custom_voice-0b6", "text": TEXT, "speaker": "vivian"},
    {"model": "custom_voice-0b6", "text": LONG, "speaker": "ryan", "streamed": True},
    {"model": "voice_design-1b7", "text": TEXT, "instruct": INSTRUCT},
    {"model": "voice_design-1b7", "text": TEXT, "instruct": INSTRUCT, "streamed": True},
    {"model": "voice_design-1b7", "text": CHINESE, "instruct": "", "language": "chinese"},
    {"model": "base-1b7", "text": TEXT, "clip_s": 2.0, "ref_text": TRANSCRIPT, "streamed": True},
    {"model": "base-1b7", "text": LONG, "clip_s": 1.07, "ref_text": TRANSCRIPT, "streamed": True},
    {"model": "base-1b7", "text": TEXT, "clip_s": 2.0, "ref_text": TRANSCRIPT},
    {
        "model": "base-1b7",
        "text": TEXT,
        "clip_s": 2.0,
        "ref_text": TRANSCRIPT,
        "language": "english",
    },
    {"model": "base-1b7", "text": TEXT, "clip_s": 1.07, "streamed": True},
    {"model": "base-1b7", "text": TEXT, "clip_s": 2.0},
    {"model": "base-0b6", "text": LONG, "clip_s": 1.07, "ref_text": TRANSCRIPT, "streamed": True},
    {"model": "base-0b6", "text": TEXT, "clip_s": 1.07},
]
WAVES = (0, 3, 18, 20)
"""Cases whose waveform is stored too: the first frames of each."""
STRINGS = (
    TEXT,
    LONG,
    CHINESE,
    "I'm fine; it's 1234.56, isn't it?\n\nWe'll see\r\n what  they've  got  ",
    "😀 👍👍 👩‍👩‍👧 🇫🇷 ✨",
    "Bonjour, comme c\u0327a va? e\u0301te\u0301 한국어 안녕 각",
    "tabs\tand   spaces\n   and\n\n\n lines !!! ...\n",
)
CLIPS_S = (1.07, 2.0, 12.3)


def build_environment(folder: Path) -> Path:
    """The Python of a virtual environment that holds the reference."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    pinned = str(HERE / "requirements.txt")
    install = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "-r", pinned]
    subprocess.run(install, check=True)
    return python


def stub_modules() -> None:
    """The package imports three libraries that only its other codec uses; empty ones serve.

    torchaudio's builds want CUDA, the others are native programs. transformers looks for them by
    their specification, so its checks are imported first.
    """
    import transformers.utils.import_utils  # noqa: F401

    for name in ("sox", "onnxruntime", "torchaudio", "torchaudio.compliance"):
        module = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        sys.modules[name] = module
    kaldi = types.ModuleType("torchaudio.compliance.kaldi")
    kaldi.__spec__ = importlib.machinery.ModuleSpec(kaldi.__name__, None)
    sys.modules[kaldi.__name__] = kaldi


def check_names(model: Any, config: dict[str, Any], sound: dict[str, Any]) -> None:
    """The published layout, as the reference sees it, holds exactly the tensors that we write."""
    from checkpoint import codec_shapes, model_shapes

    for module, shapes in (
        (model, model_shapes(config)),
        (model.speech_tokenizer.model, codec_shapes(sound)),
    ):
        theirs = {n: tuple(t.shape) for n, t in module.state_dict().items()}
        assert theirs == shapes, set(theirs.items()) ^ set(shapes.items())


def load(name: str, folder: Path) -> Any:
    """The reference model of a small checkpoint, float32."""
    import torch
    from checkpoint import codec_config, make_checkpoint, model_config
    from qwen_tts import Qwen3TTSModel

    kind, size = name.split("-")
    make_checkpoint(folder, kind, size)
    wrapper = Qwen3TTSModel.from_pretrained(str(folder), dtype=torch.float32)
    check_names(wrapper.model, model_config(kind, size), codec_config())
    return wrapper


def speak(wrapper: Any, case: dict[str, Any]) -> tuple[Any, Any]:
    """(codes [F, 16], wave [samples]) of one case, by the reference's public calls."""
    from checkpoint import speech_like

    seen: list[Any] = []
    generate = wrapper.model.generate

    def spy(**arguments: Any) -> Any:
        result = generate(**arguments)
        seen.append(result[0][0])
        return result

    wrapper.model.generate = spy
    extra = {k: case[k] for k in ("repetition_penalty", "max_new_tokens") if k in case}
    shared = {
        "text": case["text"],
        "language": case.get("language", "Auto"),
        "non_streaming_mode": not case.get("streamed", False),
        **GREEDY,
        **extra,
    }
    if "clip_s" in case:
        clip = (speech_like(case["clip_s"]), 24000)
        waves, _ = wrapper.generate_voice_clone(
            ref_audio=clip,
            ref_text=case.get("ref_text"),
            x_vector_only_mode="ref_text" not in case,
            **shared,
        )
    elif "speaker" in case:
        instruct = case.get("instruct")
        waves, _ = wrapper.generate_custom_voice(
            speaker=case["speaker"], instruct=instruct, **shared
        )
    else:
        waves, _ = wrapper.generate_voice_design(instruct=case["instruct"], **shared)
    wrapper.model.generate = generate
    return seen[0], waves[0]


def codec_goldens(codec: Any, tensors: dict[str, Any]) -> dict[str, float]:
    """Decoded random codes, one shot and in the reference's own windows."""
    import torch
    from checkpoint import uniform

    noise = torch.from_numpy(uniform("codes", (330, 16)))
    codes = ((noise + 1) * 1024).long().clamp(0, 2047)
    with torch.inference_mode():
        batch = codes.T[None]
        whole = codec.decoder(batch)[0, 0]
        windowed = codec.decoder.chunked_decode(batch)[0, 0]
        double = codec.decoder.double()(batch)[0, 0]
        codec.decoder.float()
    hop = 1920
    for first, last in ((0, 2), (298, 302), (329, 330)):
        tensors[f"codec.frames{first}-{last}"] = whole[first * hop : last * hop].clone()
    tail, error = whole[300 * hop :], (windowed - whole)[300 * hop :]
    return {
        "clamped_share": float((whole.abs() >= 1).float().mean()),
        "wave_rms": float(whole.pow(2).mean().sqrt()),
        "float32_error": float((whole - double).abs().max()),
        "windowed_first_300_difference": float((windowed - whole)[: 300 * hop].abs().max()),
        "windowed_rest_relative_rms": float((error.pow(2).mean() / tail.pow(2).mean()).sqrt()),
        "windowed_rest_difference": float(error.abs().max()),
    }


def encoder_goldens(wrapper: Any, tensors: dict[str, Any]) -> None:
    """Speaker vectors, one mel spectrogram and reference codes of the clips."""
    import torch
    from checkpoint import speech_like
    from qwen_tts.core.models.modeling_qwen3_tts import mel_spectrogram

    for seconds in CLIPS_S:
        clip = speech_like(seconds)
        codes = wrapper.model.speech_tokenizer.encode(clip, sr=24000).audio_codes[0]
        tensors[f"clip{seconds}.codes"] = codes.to(torch.int16).contiguous()
        vector = wrapper.model.extract_speaker_embedding(clip, 24000)
        tensors[f"clip{seconds}.speaker"] = vector.clone()
    clip = torch.from_numpy(speech_like(CLIPS_S[0]))[None]
    mel = mel_spectrogram(clip, 1024, 128, 24000, 256, 1024, 0, 12000)
    tensors["mel"] = mel[0].contiguous()


def make() -> None:
    """Write the goldens; runs inside the reference's environment."""
    stub_modules()
    import torch
    from safetensors.torch import save_file

    torch.set_num_threads(1)
    tensors: dict[str, Any] = {}
    report: dict[str, Any] = {"tokens": {}}
    with tempfile.TemporaryDirectory() as scratch:
        models: dict[str, Any] = {}
        for number, case in enumerate(CASES):
            name = case["model"]
            if name not in models:
                models[name] = load(name, Path(scratch) / name)
            codes, wave = speak(models[name], case)
            tensors[f"case{number}.codes"] = codes.to(torch.int16).contiguous()
            if number in WAVES:
                tensors[f"case{number}.wave"] = torch.from_numpy(wave[: 6 * 1920]).clone()
            print(number, case["model"], codes.shape[0], "frames", len(wave), codes[:6, 0].tolist())
        tokenizer = models["custom_voice-1b7"].processor.tokenizer
        for text in STRINGS:
            wrapped = f"<|im_start|>assistant\n{text.strip()}<|im_end|>\n<|im_start|>assistant\n"
            report["tokens"][text] = tokenizer(wrapped)["input_ids"][3:-5]
        report["codec"] = codec_goldens(models["base-1b7"].model.speech_tokenizer.model, tensors)
        encoder_goldens(models["base-1b7"], tensors)
    report["cases"] = CASES
    report["defaults"] = GREEDY
    print(json.dumps(report["codec"], indent=1))
    save_file(tensors, HERE / "goldens.safetensors")
    text = json.dumps(report, ensure_ascii=False, indent=1)
    (HERE / "cases.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(tempfile.gettempdir()) / "qwen3-tts-reference"
    parser.add_argument("--venv", type=Path, default=default)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        make()
    else:
        python = build_environment(arguments.venv)
        subprocess.run([str(python), str(Path(__file__).resolve()), "--inside"], check=True)
