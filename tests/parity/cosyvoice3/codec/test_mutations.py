"""The goldens can fail: each of these slips, small and plausible, makes them."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.models.cosyvoice3.sound import FlowRig, Speech, VocoderRig, flow, vocoder
from tests.models.cosyvoice3.sound_checkpoint import SMALL_VOCODER, noise_table
from tests.parity.cosyvoice3.codec.test_parity import (
    GOLDENS,
    MEL_ATOL,
    REPORT,
    WAVE_ATOL,
)
from voxserve.models.cosyvoice3 import dit, solver, source, weight_norm
from voxserve.models.cosyvoice3 import flow as flow_module
from voxserve.models.cosyvoice3 import vocoder as vocoder_module
from voxserve.models.cosyvoice3.state import BLOCK_FRAMES
from voxserve.nn.transformer import Attend
from voxserve.plugin import State

Patch = pytest.MonkeyPatch
CUTS = (24, 50, 50, 18)


def mel_agrees(case: str = "short") -> bool:
    """Whether a case's codes give its golden mel, one block at a time."""
    sizes = REPORT["cases"][case]
    one = Speech(case, sizes["prompt"], sizes["new"])
    mel = FlowRig().whole(one, [1] * one.blocks)
    return bool((mel - GOLDENS[f"{case}.mel"]).abs().max() <= MEL_ATOL)


def whole_mel_agrees() -> bool:
    """The same with all blocks in one run."""
    sizes = REPORT["cases"]["long"]
    mel = FlowRig().whole(Speech("long", sizes["prompt"], sizes["new"]))
    return bool((mel - GOLDENS["long.mel"]).abs().max() <= MEL_ATOL)


def wave_agrees() -> bool:
    """Whether the golden mel gives the golden sound, in chunks."""
    wave = VocoderRig().say(GOLDENS["long.mel"], CUTS)
    return bool((wave - GOLDENS["wave"]).abs().max() <= WAVE_ATOL)


def _all_heads_rotated(patch: Patch) -> bool:
    def forward(
        self: dit.SelfAttention, x: Tensor, rotation: dit.Rotation, attend: Attend
    ) -> Tensor:
        parts = list(self.qkv(x).view(*x.shape[:2], *self.split).unbind(2))
        for part in parts[:2]:
            for head in range(part.shape[2]):
                part[:, :, head] = dit.rotate_pairs(part[:, :, head], rotation)
        out: Tensor = self.to_out[0](attend(*parts).flatten(2))
        return out

    patch.setattr(dit.SelfAttention, "forward", forward)
    return mel_agrees()


def _halves_rotated(patch: Patch) -> bool:
    def rotate(x: Tensor, rotation: dit.Rotation) -> Tensor:
        low, high = x.chunk(2, dim=2)
        cosines, sines = rotation
        return torch.cat((low * cosines - high * sines, high * cosines + low * sines), dim=2)

    patch.setattr(dit, "rotate_pairs", rotate)
    return mel_agrees()


def _positions_from_the_block(patch: Patch) -> bool:
    right = dit.Rotary.forward

    def forward(self: dit.Rotary, positions: Tensor) -> dit.Rotation:
        return right(self, positions % BLOCK_FRAMES)

    patch.setattr(dit.Rotary, "forward", forward)
    return mel_agrees()


def _full_attention(patch: Patch) -> bool:
    right = solver.Blocks.__init__

    def init(self: solver.Blocks, *given: Any) -> None:
        right(self, *given)
        self.mask = self.mask | self.mask[:, -1:]

    patch.setattr(solver.Blocks, "__init__", init)
    return whole_mel_agrees()


def _padding_seen(patch: Patch) -> bool:
    right = solver.Blocks.__init__

    def init(self: solver.Blocks, table: Tensor, first: Tensor, count: Tensor, *rest: Any) -> None:
        right(self, table, first, torch.full_like(count, 25), *rest)

    patch.setattr(solver.Blocks, "__init__", init)
    return mel_agrees()


def _noise_of_the_block(patch: Patch) -> bool:
    noise = flow("float32").noise
    patch.setitem(flow("float32")._buffers, "noise", noise[:BLOCK_FRAMES].repeat(20, 1))
    return mel_agrees()


def _guidance_weaker(patch: Patch) -> bool:
    patch.setattr(flow("float32"), "config", replace(flow("float32").config, cfg=0.69))
    return mel_agrees()


def _even_steps(patch: Patch) -> bool:
    patch.setattr(flow("float32"), "sizes", [0.1] * 10)
    return mel_agrees()


def _voice_without_guidance_too(patch: Patch) -> bool:
    right = dit.InputEmbedding.conditions

    def conditions(self: dit.InputEmbedding, given: Tensor) -> Tensor:
        only = given.clone()
        only[..., : 2 * self.mel] = 0
        return torch.stack((right(self, given)[:, 0], right(self, only)[:, 0]), dim=1)

    patch.setattr(dit.InputEmbedding, "conditions", conditions)
    return mel_agrees()


def _speaker_not_normalised(patch: Patch) -> bool:
    patch.setattr(functional, "normalize", lambda vector: vector)
    return mel_agrees()


def _no_look_ahead(patch: Patch) -> bool:
    right = flow_module.Flow.encode

    def encode(self: flow_module.Flow, codes: Tensor, known: Tensor) -> Tensor:
        known = known.clone()
        known[:, -3:] = False
        return right(self, codes, known)

    patch.setattr(flow_module.Flow, "encode", encode)
    return mel_agrees()


def _nothing_before_a_block(patch: Patch) -> bool:
    right = flow_module.LookAhead.forward

    def forward(self: flow_module.LookAhead, x: Tensor, before: Tensor) -> Tensor:
        return right(self, x, torch.zeros_like(before))

    patch.setattr(flow_module.LookAhead, "forward", forward)
    return mel_agrees()


def _start_not_padded(patch: Patch) -> bool:
    right = flow_module.LookAhead.forward

    def forward(self: flow_module.LookAhead, x: Tensor, before: Tensor) -> Tensor:
        return right(self, x, torch.ones_like(before))

    patch.setattr(flow_module.LookAhead, "forward", forward)
    return mel_agrees()


def _position_without_its_past(patch: Patch) -> bool:
    right = dit.PositionConv.forward

    def forward(
        self: dit.PositionConv, x: Tensor, before: Tensor, lengths: Tensor
    ) -> tuple[Tensor, Tensor]:
        return right(self, x, before * torch.tensor([1.0, 0.0]).view(1, 2, 1, 1), lengths)

    patch.setattr(dit.PositionConv, "forward", forward)
    return mel_agrees()


def _exact_gelu(patch: Patch) -> bool:
    for block in flow("float32").decoder.estimator.transformer_blocks:
        first = block.get_submodule("ff.ff.0")
        patch.setitem(first._modules, "1", nn.GELU())
    return mel_agrees()


def _shift_before_scale_in_the_last_norm(patch: Patch) -> bool:
    last = flow("float32").decoder.estimator.norm_out
    swapped = last.table.flip(1) + torch.tensor([1.0, -1.0])[:, None]
    patch.setitem(last._buffers, "table", swapped)
    return mel_agrees()


def _f0_in_float32(patch: Patch) -> bool:
    right = source.F0Predictor.forward

    def forward(
        self: source.F0Predictor, mel: Tensor, flat: Tensor, lengths: Tensor
    ) -> tuple[Tensor, Tensor]:
        f0, after = right(self, mel, flat, lengths)
        return f0.float().double(), after

    patch.setattr(source.F0Predictor, "forward", forward)
    return wave_agrees()


def _phase_not_carried(patch: Patch) -> bool:
    _spoil_source(patch, lambda f0, phase, start: (f0, phase * 0, start))
    return wave_agrees()


def _noise_of_the_chunk(patch: Patch) -> bool:
    _spoil_source(patch, lambda f0, phase, start: (f0, phase, start * 0))
    return wave_agrees()


def _phase_of_the_frame_before(patch: Patch) -> bool:
    def late(f0: Tensor, phase: Tensor, start: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        number = torch.arange(1, phase.shape[1] + 1)
        return f0, phase - f0[:, :1] * number / SMALL_VOCODER.rate_hz, start

    _spoil_source(patch, late)
    return wave_agrees()


def _spoil_source(
    patch: Patch, change: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
) -> None:
    right = source.Source.forward

    def forward(
        self: source.Source, f0: Tensor, phase: Tensor, start: Tensor, lengths: Tensor
    ) -> tuple[Tensor, Tensor]:
        return right(self, *change(f0, phase, start), lengths)

    patch.setattr(source.Source, "forward", forward)


def _voiced_always(patch: Patch) -> bool:
    patch.setattr(vocoder("float32").m_source, "config", replace(SMALL_VOCODER, voiced=0.0))
    return wave_agrees()


def _noise_around_zero(patch: Patch) -> bool:
    table = noise_table(SMALL_VOCODER, 10) - 0.5
    weight = vocoder("float32").m_source.l_linear.weight[0]
    patch.setitem(vocoder("float32").m_source._buffers, "noise", table @ weight)
    return wave_agrees()


def _last_slope_as_the_others(patch: Patch) -> bool:
    right = functional.leaky_relu
    patch.setattr(functional, "leaky_relu", lambda x, slope=0.1: right(x, slope))
    return wave_agrees()


def _no_mirror_at_the_start(patch: Patch) -> bool:
    right = vocoder("float32").decode

    def decode(given: vocoder_module.Window, state: State) -> Tensor:
        if given.fresh.any():
            state["vocoder.conv"].zero_()
        return right(replace(given, fresh=torch.zeros_like(given.fresh)), state)

    patch.setattr(vocoder("float32"), "decode", decode)
    return wave_agrees()


def _symmetric_window(patch: Patch) -> bool:
    spectrum = vocoder("float32").spectrum
    place = torch.arange(16)
    ratio = torch.sin(place * math.pi / 15) ** 2 / torch.sin(place * math.pi / 16).pow(2).clamp(
        1e-9
    )
    patch.setitem(spectrum._buffers, "forth", spectrum.forth * ratio)
    return wave_agrees()


def _blocks_added_not_averaged(patch: Patch) -> bool:
    patch.setattr(torch.Tensor, "mean", lambda self, dim: self.sum(dim))
    return wave_agrees()


def _held_frames_forgotten(patch: Patch) -> bool:
    right = vocoder_module.Vocoder._window
    patch.setattr(
        vocoder_module.Vocoder,
        "_window",
        lambda self, mel, held, *rest: right(self, mel, held * 0, *rest),
    )
    return wave_agrees()


def _upsampling_a_column_late(patch: Patch) -> bool:
    right = weight_norm.UpsampleConv.forward

    def forward(
        self: weight_norm.UpsampleConv, x: Tensor, state: Tensor, lengths: Tensor
    ) -> tuple[Tensor, Tensor]:
        out, after = right(self, x, state, lengths)
        return out.roll(1, dims=2), after

    patch.setattr(weight_norm.UpsampleConv, "forward", forward)
    return wave_agrees()


MUTATIONS = (
    _all_heads_rotated,
    _halves_rotated,
    _positions_from_the_block,
    _full_attention,
    _padding_seen,
    _noise_of_the_block,
    _guidance_weaker,
    _even_steps,
    _voice_without_guidance_too,
    _speaker_not_normalised,
    _no_look_ahead,
    _nothing_before_a_block,
    _start_not_padded,
    _position_without_its_past,
    _exact_gelu,
    _shift_before_scale_in_the_last_norm,
    _f0_in_float32,
    _phase_not_carried,
    _noise_of_the_chunk,
    _phase_of_the_frame_before,
    _voiced_always,
    _noise_around_zero,
    _last_slope_as_the_others,
    _no_mirror_at_the_start,
    _symmetric_window,
    _blocks_added_not_averaged,
    _held_frames_forgotten,
    _upsampling_a_column_late,
)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__qualname__)
def test_the_goldens_notice(mutation: Callable[[Patch], bool], monkeypatch: Patch) -> None:
    assert not mutation(monkeypatch)


def test_the_checks_pass_unchanged() -> None:
    """Otherwise the mutations would prove nothing."""
    assert mel_agrees() and whole_mel_agrees() and wave_agrees()
