"""Checkpoints load strictly, and random weights have the published shapes."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.parity.qwen3_tts.rig import checkpoint, host
from voxserve.errors import CheckpointError
from voxserve.models.qwen3_tts import plugin
from voxserve.models.qwen3_tts.config import Qwen3Config
from voxserve.models.qwen3_tts.stages import load
from voxserve.models.qwen3_tts.weights import LanguageModel
from voxserve.plugin import Checkpoint, Target

CUSTOM = "custom_voice-1b7"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    source = checkpoint(CUSTOM).folder
    assert source is not None
    return Path(shutil.copytree(source, tmp_path / "model"))


def read(folder: Path) -> Checkpoint:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return Checkpoint("copy", folder, config)


def change(file: Path, drop: str = "", add: str = "", resize: str = "") -> None:
    tensors = load_file(file)
    if drop:
        del tensors[drop]
    if add:
        tensors[add] = torch.zeros(1)
    if resize:
        tensors[resize] = tensors[resize][:-1].clone()
    save_file(tensors, file)


@pytest.mark.parametrize(
    ("file", "changes", "told"),
    [
        ("model.safetensors", {"drop": "talker.model.norm.weight"}, "talker.model.norm.weight"),
        (
            "model.safetensors",
            {"drop": "talker.code_predictor.small_to_mtp_projection.bias"},
            "small_to_mtp_projection.bias",
        ),
        ("model.safetensors", {"add": "talker.lora.weight"}, "talker.lora.weight"),
        (
            "model.safetensors",
            {"resize": "talker.codec_head.weight"},
            r"codec_head.weight \[3071, 48\] for \[3072, 48\]",
        ),
        (
            "speech_tokenizer/model.safetensors",
            {"drop": "decoder.pre_conv.conv.bias"},
            "decoder.pre_conv.conv.bias",
        ),
        ("speech_tokenizer/model.safetensors", {"add": "decoder.extra"}, "decoder.extra"),
    ],
)
def test_unfit_files_are_refused(
    folder: Path, file: str, changes: dict[str, str], told: str
) -> None:
    change(folder / file, **changes)
    with pytest.raises(CheckpointError, match=told):
        load(read(folder), Target("cpu", "float32"))


@pytest.mark.parametrize(
    "file", ["speech_tokenizer/config.json", "speech_tokenizer/model.safetensors"]
)
def test_missing_files_are_named(folder: Path, file: str) -> None:
    (folder / file).unlink()
    with pytest.raises(CheckpointError, match="speech_tokenizer"):
        load(read(folder), Target("cpu", "float32"))


def test_a_missing_tokenizer_is_named(folder: Path) -> None:
    (folder / "merges.txt").unlink()
    with pytest.raises(CheckpointError, match="tokenizer"):
        plugin.host(read(folder))


def test_generation_config_sets_the_defaults(folder: Path) -> None:
    path = folder / "generation_config.json"
    path.write_text(json.dumps({"do_sample": False, "top_k": 20}), encoding="utf-8")
    ranges = plugin.host(read(folder)).info.ranges
    assert (ranges["temperature"].default, ranges["top_k"].default) == (0.0, 20)
    path.unlink()
    assert plugin.host(read(folder)).info.ranges["temperature"].default == 0.9


def test_a_fine_tune_without_speaker_encoder_loads(tmp_path: Path) -> None:
    """The official fine-tuning keeps a Base configuration but for the kind and its speakers."""
    source = checkpoint("base-1b7").folder
    assert source is not None
    tuned = Path(shutil.copytree(source, tmp_path / "tuned"))
    weights = load_file(tuned / "model.safetensors")
    kept = {n: t for n, t in weights.items() if not n.startswith("speaker_encoder.")}
    save_file(kept, tuned / "model.safetensors")
    config = json.loads((tuned / "config.json").read_text(encoding="utf-8"))
    config["tts_model_type"] = "custom_voice"
    config["talker_config"] |= {"spk_id": {"mia": 3000}, "spk_is_dialect": {"mia": False}}
    (tuned / "config.json").write_text(json.dumps(config), encoding="utf-8")
    made = load(read(tuned), Target("cpu", "float32"))
    assert made.language.speaker_encoder is None and made.sound.encoder is None


@pytest.mark.parametrize(
    ("hub_id", "tensors", "parameters"),
    [
        ("Qwen/Qwen3-TTS-12Hz-0.6B-Base", 478, 914.6e6),
        ("Qwen/Qwen3-TTS-12Hz-1.7B-Base", 480, 1928.7e6),
        ("Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice", 402, 905.8e6),
        ("Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice", 404, 1916.7e6),
        ("Qwen/Qwen3-TTS-12Hz-1.7B-VoiceDesign", 404, 1916.7e6),
    ],
)
def test_published_shapes(hub_id: str, tensors: int, parameters: float) -> None:
    """Tensor and parameter counts of the released files."""
    config = Qwen3Config.read(Checkpoint(hub_id, None, plugin.published[hub_id], dummy=True))
    with torch.device("meta"):
        module = LanguageModel(config)
    state = module.state_dict()
    assert len(state) == tensors
    assert sum(t.numel() for t in state.values()) == pytest.approx(parameters, rel=1e-3)


def test_state_of_the_published_codec() -> None:
    """1.3 million values a stream, most of them the transformer's window."""
    hub_id = "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice"
    codec = Qwen3Config.read(Checkpoint(hub_id, None, plugin.published[hub_id], dummy=True)).decoder
    window = 1
    for size in codec.window_state:
        window *= size
    assert window == 1_163_264
    assert codec.samples_per_frame == 1920
    assert codec.conv_state == 512 * 2 + 1024 * 6 * 3 + 1536 + 768 + 384 + 192 + 96 * 6 + 78 * 1440


def test_random_weights_speak_varied_and_repeatable_codes() -> None:
    """Random weights of a small configuration, in bfloat16, made twice."""
    right = checkpoint(CUSTOM)
    dummy = replace(right, dummy=True)
    first, second = (load(dummy, Target("cpu", "bfloat16")) for _ in range(2))
    for (name, a), (_, b) in zip(
        first.language.state_dict().items(), second.language.state_dict().items(), strict=True
    ):
        assert a.dtype == torch.bfloat16 and torch.equal(a, b), name
    books = first.sound.decoder.quantizer.rvq_rest.books
    assert 0.9 < books.float().std() < 1.1
    assert host(CUSTOM).spec.sample_rate_hz == 24_000
