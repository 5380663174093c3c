"""Checkpoints load strictly, and random weights have the published shapes."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.parity.higgs_audio_v3.checkpoint import EMBEDDINGS
from tests.parity.higgs_audio_v3.rig import checkpoint, model, random_codes
from voxserve.errors import CheckpointError
from voxserve.models.higgs_audio_v3 import plugin
from voxserve.models.higgs_audio_v3.codec import HiggsCodec
from voxserve.models.higgs_audio_v3.config import HiggsConfig
from voxserve.models.higgs_audio_v3.lm import HiggsLm
from voxserve.models.higgs_audio_v3.stages import load
from voxserve.plugin import Checkpoint, Target

CPU = Target("cpu", "float32")
HUB = "bosonai/higgs-tts-3-4b"
SOUND = f"{EMBEDDINGS}.model."
PLACES = f"{SOUND}semantic_model.encoder.pos_conv_embed.conv."


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    source = checkpoint().folder
    assert source is not None
    made = Path(shutil.copytree(source, tmp_path / "model"))
    (made / "model.safetensors.index.json").unlink()
    return made


def read(folder: Path) -> Checkpoint:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return Checkpoint("copy", folder, config)


def change(folder: Path, drop: str = "", add: str = "", resize: str = "") -> None:
    file = folder / "model.safetensors"
    tensors = load_file(file)
    if drop:
        del tensors[drop]
    if add:
        tensors[add] = torch.zeros(1)
    if resize:
        tensors[resize] = tensors[resize][:-1].clone()
    save_file(tensors, file)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"drop": "body.norm.weight"}, "missing: body.norm.weight"),
        ({"drop": f"{EMBEDDINGS}.embedding.weight"}, "missing: codes.weight"),
        ({"add": "body.lora.weight"}, "unexpected: body.lora.weight"),
        ({"resize": "tied.embedding.text_embedding.weight"}, "another shape: text.weight"),
        ({"drop": f"{SOUND}fc2.bias"}, "missing: fc2.bias"),
        ({"drop": f"{SOUND}quantizer.quantizers.7.codebook.embed"}, r"quantizers\.7\.codebook"),
        ({"add": f"{SOUND}extra"}, "unexpected: .*extra"),
    ],
)
def test_unfit_files_are_refused(folder: Path, changes: dict[str, str], told: str) -> None:
    change(folder, **changes)
    with pytest.raises(CheckpointError, match=told):
        load(read(folder), CPU)


@pytest.mark.parametrize(
    "name",
    ["tied.head.text_head.weight", "tied.head.modality_heads.0.weight", f"{SOUND}fc1.weight"],
)
def test_what_is_never_used_may_be_left_out(folder: Path, name: str) -> None:
    change(folder, drop=name)
    load(read(folder), CPU)


def test_the_older_names_of_the_weight_norm(folder: Path) -> None:
    """`weight_g` and `weight_v`, as torch wrote them before parametrisations."""
    file = folder / "model.safetensors"
    old = {"original0": "weight_g", "original1": "weight_v"}
    tensors = load_file(file)
    for new, name in old.items():
        tensors[f"{PLACES}{name}"] = tensors.pop(f"{PLACES}parametrizations.weight.{new}")
    save_file(tensors, file)
    theirs, ours = load(read(folder), CPU).sound, model().sound
    assert torch.equal(
        theirs.semantic_model.encoder.pos_conv_embed.conv.weight,
        ours.semantic_model.encoder.pos_conv_embed.conv.weight,
    )


def test_the_codec_is_float32_beside_any_body() -> None:
    made = load(checkpoint(), Target("cpu", "bfloat16"))
    assert {p.dtype for p in made.lm.parameters()} == {torch.bfloat16}
    assert {p.dtype for p in made.sound.parameters()} == {torch.float32}
    frames = random_codes(12)[None]
    real = torch.ones(1, 12, dtype=torch.bool)
    with torch.inference_mode():
        pair = [m.sound.decode(frames, real, 0, 0) for m in (made, model())]
    assert torch.equal(*pair)


def test_parameters_of_the_published_model() -> None:
    """Of the 200 million of the codec, those that serving does not need are left out."""
    config = HiggsConfig.read(Checkpoint(HUB, None, plugin.published[HUB], dummy=True))
    with torch.device("meta"):
        lm, sound = HiggsLm(config.body), HiggsCodec(config.codec, 8)
    body = sum(p.numel() for p in lm.body.parameters())
    assert body == pytest.approx(3.633e9, rel=1e-3)
    assert lm.text.weight.shape == (151_936, 2560) and lm.codes.weight.shape == (8 * 1026, 2560)
    for part, millions in (
        (sound.acoustic_encoder, 51.3),
        (sound.acoustic_decoder, 20.24),
        (sound.encoder_semantic, 14.7),
        (sound.semantic_model, 94.4),
        (sound.fc, 1.05),
        (sound.fc2, 0.26),
    ):
        count = sum(p.numel() for p in part.parameters())
        assert count / 1e6 == pytest.approx(millions, rel=0.01)
    assert sound.acoustic_decoder.context == 10


def test_random_weights_are_varied_and_repeatable() -> None:
    """Made twice, of a small configuration; the codec says more than silence."""
    dummy = replace(checkpoint(), dummy=True)
    first, second = (load(dummy, Target("cpu", "bfloat16")) for _ in range(2))
    for (name, a), (_, b) in zip(
        first.lm.state_dict().items(), second.lm.state_dict().items(), strict=True
    ):
        assert a.dtype == torch.bfloat16 and torch.equal(a, b), name
    with torch.inference_mode():
        real = torch.ones(1, 12, dtype=torch.bool)
        audio = first.sound.decode(random_codes(12)[None], real, 0, 0)
    assert audio.isfinite().all() and 1e-3 < audio.std() < 100
