"""Make the goldens of Higgs Audio v3, in an environment of its own.

    python tests/parity/higgs_audio_v3/make_goldens.py [--venv FOLDER]

No public package speaks this model on a CPU, so the reference is put together here: the body is the
`Qwen3Model` of transformers, the codec its `HiggsAudioV2TokenizerModel`, the tokenizer its own, and
between them stand the prompt and the state machine that sglang-omni 0.1.9 documents, one row at a
time and without a cache. Creates a virtual environment (by default in the system's temporary
folder), installs the pinned packages of requirements.txt without their own dependencies, and runs
itself again inside. Writes cases.json and goldens.safetensors beside it. Nothing here is imported
by the server or by its tests.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import types
import venv
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
TEXT = "Hello there! The news is read aloud."
TAGGED = "<|emotion:happy|>Good news: <|sfx:laughter|> it works.<|prosody:slow|> At last"
CHINESE = "你好，世界。今天天气很好。"
SPOKEN = "The quick brown fox."
STEPS = 60

CASES: list[dict[str, Any]] = [
    {"text": TEXT},
    {"text": TAGGED},
    {"text": CHINESE},
    {"text": "a"},
    {"text": "b"},
    {"text": TEXT, "clip_s": 2.0, "ref_text": SPOKEN},
    {"text": TEXT, "clip_s": 2.0},
    {"text": CHINESE, "clip_s": 1.0139, "ref_text": SPOKEN},
    {"text": TAGGED, "clip_s": 1.305},
    {"text": "Another one, please.", "clip_s": 1.305, "ref_text": TAGGED},
]
WAVES = (0, 5)
"""Cases whose waveform is stored too."""
STRINGS = (
    TEXT,
    TAGGED,
    CHINESE,
    "I'm fine; it's 1234.56, isn't it?\n\nWe'll see\r\n what  they've  got",
    "😀 👍👍 👩‍👩‍👧 🇫🇷 ✨",
    "<|sfx:laughter|>",
    " <|sfx:laughter|><|sfx:laughter|> x",
)
CLIPS_S = (1.0, 1.0139, 1.305, 2.0, 4.7)
"""One path through the encoder pads the clip, the other does not; both are among these."""


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
    """torchaudio's native half wants CUDA; its resampler, all that is used, is plain Python."""
    extension = types.ModuleType("torchaudio._extension")
    extension._IS_TORCHAUDIO_EXT_AVAILABLE = False  # type: ignore[attr-defined]
    extension._load_lib = lambda name: False  # type: ignore[attr-defined]
    extension.fail_if_no_align = lambda function: function  # type: ignore[attr-defined]
    sys.modules["torchaudio._extension"] = extension


class Reference:
    """The small checkpoint in the hands of transformers, float32."""

    def __init__(self, folder: Path) -> None:
        import torch
        from safetensors.torch import load_file
        from transformers import (
            HiggsAudioV2TokenizerConfig,
            HiggsAudioV2TokenizerModel,
            PreTrainedTokenizerFast,
            Qwen3Config,
            Qwen3Model,
        )

        from tests.parity.higgs_audio_v3 import checkpoint as small

        small.make_checkpoint(folder)
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        weights = {n: t.float() for n, t in load_file(folder / "model.safetensors").items()}
        text = dict(config["text_config"])
        text["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e6}
        text.pop("rope_theta")
        self.body = Qwen3Model(Qwen3Config(**text)).eval()
        inner = {n.removeprefix("body."): t for n, t in weights.items() if n.startswith("body.")}
        inner["embed_tokens.weight"] = weights["tied.embedding.text_embedding.weight"]
        self.body.load_state_dict(inner, strict=True)
        self.table = weights[f"{small.EMBEDDINGS}.embedding.weight"]
        at = f"{small.EMBEDDINGS}.model."
        codec = config["audio_encoder_config"]["codec_config"]
        self.codec = HiggsAudioV2TokenizerModel(HiggsAudioV2TokenizerConfig(**codec)).eval()
        theirs = {n: tuple(t.shape) for n, t in self.codec.state_dict().items()}
        ours = {n: s for n, s in small.codec_shapes().items() if n in theirs}
        assert theirs == ours, set(theirs.items()) ^ set(small.codec_shapes().items())
        sound = {n.removeprefix(at): t for n, t in weights.items() if n.startswith(at)}
        self.codec.load_state_dict({n: sound[n] for n in theirs}, strict=True)
        self.tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
        self.torch = torch

    def ids(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return ids

    def encoded(self, seconds: float) -> Any:
        """Codes [F, 8] of a clip."""
        from tests.parity.higgs_audio_v3.checkpoint import speech_like

        clip = self.torch.from_numpy(speech_like(seconds))[None, None]
        return self.codec.encode(clip).audio_codes[0].T

    def decoded(self, codes: Any) -> Any:
        """Waveform of codes [F, 8] that may hold control codes."""
        plain = codes.masked_fill(codes >= 1024, 0)
        return self.codec.decode(plain.T[None]).audio_values[0, 0]

    def heard(self, rows: Any) -> Any:
        """Embeddings of rows of codes [N, 8]."""
        return sum(self.table[1026 * book + rows[:, book]] for book in range(8))

    def prompt(self, case: dict[str, Any]) -> Any:
        """Embeddings [T, H] of a case's prompt."""
        torch = self.torch
        mark = {name: self.ids(f"<|{name}|>") for name in ("tts", "text", "audio")}
        texts = self.body.embed_tokens
        parts = [texts(torch.tensor(mark["tts"]))]
        if "clip_s" in case:
            before = self.ids("<|ref_audio|>")
            if "ref_text" in case:
                before = self.ids("<|ref_text|>") + self.ids(case["ref_text"]) + before
            codes = self.encoded(case["clip_s"])
            frames = len(codes)
            rows = torch.full((frames + 7, 8), 1025)
            for book in range(8):
                rows[:book, book] = 1024
                rows[book : book + frames, book] = codes[:, book]
            parts += [texts(torch.tensor(before)), self.heard(rows)]
        parts.append(texts(torch.tensor(mark["text"] + self.ids(case["text"]) + mark["audio"])))
        return torch.cat(parts)

    def speak(self, case: dict[str, Any]) -> tuple[Any, int]:
        """(rows [N, 8] that were said, greedily; frames of them), by the published machine."""
        torch = self.torch
        x, rows = self.prompt(case), []
        begun, countdown = 0, None
        while len(rows) < STEPS:
            hidden = self.body(inputs_embeds=x[None], use_cache=False).last_hidden_state[0, -1]
            row = (self.table @ hidden).view(8, 1026).argmax(dim=1)
            over = False
            if begun < 8:
                row[begun + 1 :] = 1024
                begun += 1
            elif countdown is not None:
                countdown -= 1
                over = countdown <= 0
            elif row[0] == 1025:
                countdown = 6
            rows.append(row)
            if over:
                break
            x = torch.cat((x, self.heard(row[None])))
        return torch.stack(rows), len(rows) - 7


def undelayed(rows: Any, frames: int) -> Any:
    import torch

    return torch.stack([rows[book : book + frames, book] for book in range(8)], dim=1)


def make() -> None:
    """Write the goldens; runs inside the reference's environment."""
    sys.path.insert(0, str(ROOT))
    stub_modules()
    import torch
    from safetensors.torch import save_file

    from tests.parity.higgs_audio_v3.checkpoint import uniform

    torch.set_num_threads(1)
    tensors: dict[str, Any] = {}
    report: dict[str, Any] = {"steps": STEPS, "cases": CASES, "ended": [], "tokens": {}}
    with tempfile.TemporaryDirectory() as scratch, torch.inference_mode():
        reference = Reference(Path(scratch))
        for number, case in enumerate(CASES):
            rows, frames = reference.speak(case)
            codes = undelayed(rows, frames)
            tensors[f"case{number}.rows"] = rows.to(torch.int16)
            report["ended"].append(len(rows) < STEPS)
            if number in WAVES:
                tensors[f"case{number}.wave"] = reference.decoded(codes).clone()
            wave = reference.decoded(codes)
            rms = float(wave.pow(2).mean().sqrt())
            kinds = len(set(rows[8:, 0].tolist()))
            controls = int((codes >= 1024).sum())
            print(number, len(rows), "rows", kinds, "different", controls, "controls", f"{rms:.3f}")
        for seconds in CLIPS_S:
            tensors[f"clip{seconds}.codes"] = reference.encoded(seconds).to(torch.int16)
        noise = torch.from_numpy(uniform("codes", (30, 8)))
        tensors["decoded"] = reference.decoded(((noise + 1) * 512).long().clamp(0, 1023)).clone()
        double = reference.codec.double()
        again = double.decode(((noise + 1) * 512).long().clamp(0, 1023).T[None]).audio_values[0, 0]
        report["float32_error"] = float((tensors["decoded"] - again).abs().max())
        report["wave_rms"] = float(again.pow(2).mean().sqrt())
        for text in STRINGS:
            report["tokens"][text] = reference.ids(text.strip())
    print(json.dumps({k: v for k, v in report.items() if k not in ("cases", "tokens")}, indent=1))
    save_file({n: t.contiguous() for n, t in tensors.items()}, HERE / "goldens.safetensors")
    text = json.dumps(report, ensure_ascii=False, indent=1)
    (HERE / "cases.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(tempfile.gettempdir()) / "higgs-audio-v3-reference"
    parser.add_argument("--venv", type=Path, default=default)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        make()
    else:
        python = build_environment(arguments.venv)
        subprocess.run([str(python), str(Path(__file__).resolve()), "--inside"], check=True)
