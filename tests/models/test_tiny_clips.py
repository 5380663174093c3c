"""Cloning with tiny: the clip encoder, and what its vector does to the speech."""

import numpy as np
import torch
from torch.testing import assert_close

from tests.models import tiny_reference as reference
from tests.models.tiny_rows import CLIPS, Rows, config, host, model, prompt
from voxserve.requests import ReferenceClip

RATE_HZ = 24_000


def sound(seconds: float, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(int(seconds * RATE_HZ), generator=generator) * 0.1


def clip(seconds: float = 2.0, seed: int = 1) -> ReferenceClip:
    return ReferenceClip(f"clip {seed}", np.asarray(sound(seconds, seed)))


def encode(rows: Rows, clips: dict[int, torch.Tensor], seconds: int) -> None:
    audio = torch.zeros(len(clips), seconds * RATE_HZ)
    for row, one in zip(audio, clips.values(), strict=True):
        row[: len(one)] = one
    lengths = torch.tensor([len(one) for one in clips.values()])
    io = {"clips": torch.tensor(list(clips)), "audio": audio, "lengths": lengths}
    assert rows.tiny.encode(io, rows.state) == {}


def test_a_clip_decides_the_speech_as_in_the_reference() -> None:
    rows = Rows(model())
    encode(rows, {1: sound(2.0, 1)}, 5)
    one = prompt(seed=4, clip=clip())
    codes = [rows.prefill({2: one}, clip=1)]
    codes += [rows.decode({2: (one, step)}) for step in range(1, 15)]
    speaker = rows.state["lm.speaker"][1]
    weights = model().state_dict()
    assert torch.cat(codes).tolist() == reference.speak(weights, config(), one, 15, speaker).codes
    assert torch.cat(codes).tolist() != reference.speak(weights, config(), one, 15).codes


def test_requests_without_a_clip_take_nothing_from_the_spare_row() -> None:
    rows = Rows(model())
    rows.state["lm.speaker"][CLIPS] = 5.0
    one = prompt(seed=4)
    assert torch.equal(rows.speak({0: one}, 5)[0], Rows(model()).speak({0: one}, 5)[0])


def test_padding_of_clips_changes_nothing() -> None:
    short, long = Rows(model()), Rows(model())
    encode(short, {0: sound(1.3, 1)}, 5)
    encode(long, {1: sound(12.0, 2), 0: sound(1.3, 1)}, 15)
    vectors = long.state["lm.speaker"]
    assert_close(short.state["lm.speaker"][0], vectors[0], rtol=0, atol=1e-9)
    assert (vectors[0] - vectors[1]).abs().max() > 0.01


def test_encoder_equals_its_definition() -> None:
    rows = Rows(model())
    audio = sound(1.0, 3)
    encode(rows, {0: audio}, 5)
    w, sizes = model().state_dict(), config().encoder
    windows = audio.double().unfold(0, sizes.kernel, sizes.stride)
    energies = (windows @ w["encoder.filters.weight"][:, 0].T).square()
    inner = (energies + 1e-4).log() @ w["encoder.hidden.weight"].T + w["encoder.hidden.bias"]
    mean = inner.clamp(min=0).mean(0)
    expected = w["encoder.output.weight"] @ mean + w["encoder.output.bias"]
    assert_close(rows.state["lm.speaker"][0], expected, rtol=0, atol=1e-9)


def test_every_declared_length_of_clips_fits() -> None:
    rows = Rows(model("float32"), "float32")
    for seconds in host().spec.encode_seconds:
        encode(rows, {0: sound(seconds, 1)}, seconds)
        assert rows.state["lm.speaker"][0].isfinite().all()
