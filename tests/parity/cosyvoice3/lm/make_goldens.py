"""Make the goldens of CosyVoice 3's language model with the public reference.

    python tests/parity/cosyvoice3/lm/make_goldens.py [--venv FOLDER] [--source FOLDER]

Creates a virtual environment and clones FunAudioLLM/CosyVoice (both by default in the system's
temporary folder), and runs itself again inside. There it loads the small checkpoint of
tests/models/cosyvoice3/checkpoint.py into the reference's own classes, and speaks every case with
the reference's sampling, in which the likeliest id stands in for every random draw. Writes
cases.json beside it. Nothing here is imported by the server or by its tests.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import types
import venv
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[3]
REPOSITORY = "https://github.com/FunAudioLLM/CosyVoice"
COMMIT = "ace7c47f41bbd303aa6bf1ea80e6f9fbd595cd40"
ASSISTANT = "You are a helpful assistant."
TEXT = "Hello there!"
CHINESE = "你好，世界。"
TRANSCRIPT = "The quick brown fox."

SPOKEN: list[dict[str, Any]] = [
    {"text": TEXT, "ref_text": TRANSCRIPT, "codes": 60},
    {"text": CHINESE, "ref_text": TRANSCRIPT, "codes": 173},
    {"text": "Say [breath] it <strong>now</strong>.", "ref_text": "你好", "codes": 38},
    {"text": TEXT, "instruction": "Speak slowly, in a warm voice.", "codes": 60},
    {"text": CHINESE, "instruction": "请用广东话表达。", "codes": 99},
    {"text": TEXT, "codes": 60},
    {"text": "a", "codes": 45},
    {"text": TEXT, "ref_text": TRANSCRIPT, "codes": 60, "repeats": True},
    {"text": "Once more.", "codes": 45, "repeats": True},
]
"""What is said. repeats: without the second draw of repeated ids."""

READ = (
    TEXT,
    CHINESE,
    "[AA1] [iàng][zh] <laughter>ha</laughter> [mn]x",
    "it's 3.14, [no mark] <strong >",
    "  two  spaces\nand a line",
)


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
    return folder


def stub_modules() -> None:
    """What the language model imports and never uses; transformers must not take it for real."""
    import transformers.utils.import_utils

    assert transformers.utils.import_utils.is_torch_available()
    sys.modules["torchaudio"] = types.ModuleType("torchaudio")
    onnx: Any = types.ModuleType("cosyvoice.utils.onnx")
    onnx.SpeechTokenExtractor, onnx.online_feature, onnx.onnx_path = object, False, ""
    sys.modules["cosyvoice.utils.onnx"] = onnx
    whisper: Any = types.ModuleType("whisper.tokenizer")
    whisper.Tokenizer = object
    sys.modules["whisper.tokenizer"] = whisper
    for name in ("whisper", "tiktoken"):
        sys.modules[name] = types.ModuleType(name)


def build(folder: Path) -> Any:
    """The reference's model with every tensor of our file."""
    import torch
    from cosyvoice.llm.llm import CosyVoice3LM, Qwen2Encoder
    from transformers import Qwen2Config, Qwen2ForCausalLM

    class Encoder(Qwen2Encoder):
        def __init__(self) -> None:
            torch.nn.Module.__init__(self)
            config = json.loads((folder / "CosyVoice-BlankEN/config.json").read_text())
            self.model = Qwen2ForCausalLM(Qwen2Config(**config))

    hidden = 64
    model = CosyVoice3LM(hidden, hidden, 6561, Encoder(), lambda *args: None)
    model.load_state_dict(torch.load(folder / "llm.pt", weights_only=True), strict=True)
    return model.eval()


def speak(model: Any, tokenizer: Any, case: dict[str, Any]) -> list[int]:
    """Codes by `CosyVoice3LM.inference`, laid out as the reference's front end lays it out."""
    import torch
    from cosyvoice.utils.common import ras_sampling

    from tests.models.cosyvoice3.sound_checkpoint import codes

    def ids(text: str) -> Any:
        return torch.tensor([tokenizer.encode(text)], dtype=torch.int32)

    clones = "ref_text" in case
    guide = f"{ASSISTANT}<|endofprompt|>{case.get('ref_text', '')}"
    if "instruction" in case:
        guide = f"{ASSISTANT} {case['instruction']}<|endofprompt|>"
    count = case["codes"] if clones else 0
    heard = codes("clip", case["codes"])[None, :count].to(torch.int32)
    model.sampling = partial(ras_sampling, tau_r=100.0 if case.get("repeats") else 0.1)
    text, before = ids(case["text"]), ids(guide)
    return list(
        model.inference(
            text=text,
            text_len=torch.tensor([text.shape[1]]),
            prompt_text=before,
            prompt_text_len=torch.tensor([before.shape[1]]),
            prompt_speech_token=heard,
            prompt_speech_token_len=torch.tensor(count),
            embedding=torch.zeros(0),
        )
    )


def make() -> None:
    import torch

    stub_modules()
    torch.set_num_threads(1)

    def likeliest(self: Any, count: int, replacement: bool = False) -> Any:
        return self.argmax(dim=0, keepdim=True)

    torch.Tensor.multinomial = likeliest  # type: ignore[assignment, method-assign]
    from cosyvoice.tokenizer.tokenizer import CosyVoice3Tokenizer

    from tests.models.cosyvoice3.checkpoint import lm_tensors, write_tokenizer

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tokenizer(folder / "CosyVoice-BlankEN")
        torch.save(lm_tensors(), folder / "llm.pt")
        tokenizer = CosyVoice3Tokenizer(str(folder / "CosyVoice-BlankEN"))
        model = build(folder)
        spoken = [{**case, "said": speak(model, tokenizer, case)} for case in SPOKEN]
    marks = tokenizer.special_tokens["additional_special_tokens"]
    result = {
        "spoken": spoken,
        "read": [{"text": text, "ids": tokenizer.encode(text)} for text in READ],
        "marks": dict(zip(marks, tokenizer.tokenizer.convert_tokens_to_ids(marks), strict=True)),
        "ids": len(tokenizer.tokenizer),
    }
    text = json.dumps(result, ensure_ascii=False).replace('"spoken"', '\n"spoken"')
    for key in ('"read"', '"marks"', '{"text"'):
        text = text.replace(key, f"\n{key}")
    (HERE / "cases.json").write_text(text + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    temporary = Path(tempfile.gettempdir())
    parser.add_argument("--venv", type=Path, default=temporary / "cosyvoice3-lm-reference")
    parser.add_argument("--source", type=Path, default=temporary / "cosyvoice3-source")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.inside:
        sys.path[:0] = [str(ROOT), str(chosen.source)]
        make()
        return
    python, source = build_environment(chosen.venv), clone(chosen.source)
    again = [str(python), __file__, "--inside", "--source", str(source)]
    subprocess.run(again, check=True)


if __name__ == "__main__":
    main()
