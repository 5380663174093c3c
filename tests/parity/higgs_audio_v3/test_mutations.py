"""The goldens can fail: each of these slips, small and plausible, makes them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.parity.higgs_audio_v3.checkpoint import speech_like
from tests.parity.higgs_audio_v3.rig import (
    CASES,
    GOLDENS,
    host,
    model,
    random_codes,
    request,
    rig,
    undelayed,
)
from voxserve.models.higgs_audio_v3 import layout, semantic, stages
from voxserve.models.higgs_audio_v3.codec import HiggsCodec
from voxserve.models.higgs_audio_v3.lm import HiggsLm
from voxserve.models.higgs_audio_v3.semantic import ColumnNorm, Transformer
from voxserve.nn import attention, dac, paging
from voxserve.nn.snake import Snake
from voxserve.steps import EosSteps

Patch = pytest.MonkeyPatch
PLAIN, SHORT, CLONE, SILENT_CLONE = 0, 1, 5, 6
CLIPS_S = (1.305, 2.0)


def codes_agree(number: int = PLAIN, frames: int | None = 5) -> bool:
    """Whether a case is said row by row as the golden one, from its start or as a whole."""
    (one,) = rig().speak([host().prompt(request(CASES[number], frames))])
    expected = GOLDENS[f"case{number}.rows"]
    said = torch.stack(one.rows)
    return said.tolist() == expected[: len(said) if frames else None].tolist()


def wave_agrees() -> bool:
    """Whether golden codes, control codes among them, give the golden wave in two chunks."""
    rows, expected = GOLDENS["case5.rows"].long(), GOLDENS["case5.wave"].clamp(-1, 1)
    codes = undelayed(rows, len(rows) - 7)
    wave = rig().sound(codes, [5, len(codes) - 5])
    return bool((wave - expected).abs().max() <= 1e-4 * expected.pow(2).mean().sqrt())


def long_wave_agrees(cuts: tuple[int, ...] = (5, 5, 10, 10)) -> bool:
    expected = GOLDENS["decoded"].clamp(-1, 1)
    wave = rig().sound(random_codes(30), cuts)
    return bool((wave - expected).abs().max() <= 1e-4 * expected.pow(2).mean().sqrt())


def clips_agree() -> bool:
    """Whether two clips in one padded batch get their golden codes."""
    clips = [torch.from_numpy(speech_like(seconds)) for seconds in CLIPS_S]
    audio = torch.nn.utils.rnn.pad_sequence([*clips, torch.zeros(72_000)], batch_first=True)[:2]
    with torch.inference_mode():
        codes, _ = model().sound.encode(audio, torch.tensor([len(clip) for clip in clips]))
    expected = [GOLDENS[f"clip{seconds}.codes"].tolist() for seconds in CLIPS_S]
    return all(codes[n, : len(e)].tolist() == e for n, e in enumerate(expected))


def _wrap(patch: Patch, owner: Any, name: str, change: Callable[[Any], Any]) -> None:
    """Let `change` spoil what `owner.name` returns."""
    right = getattr(owner, name)
    patch.setattr(owner, name, lambda *a, **k: change(right(*a, **k)))


def _no_query_norm(patch: Patch) -> bool:
    for layer in model().lm.body.layers:
        patch.setitem(layer.get_submodule("self_attn")._modules, "q_norm", nn.Identity())
    return codes_agree()


def _other_rotary_base(patch: Patch) -> bool:
    rope = model().lm.body.rope
    patch.setitem(rope._buffers, "frequencies", rope.frequencies ** (2 / 3))
    return codes_agree()


def _positions_from_one(patch: Patch) -> bool:
    """Rotary positions are relative: only a gap between prompt and speech can show."""
    right = attention.Paging

    def shifted(table: Tensor, positions: Tensor, *rest: Any, **named: Any) -> attention.Paging:
        return right(table, positions + (0 if named["fresh"] else 1), *rest, **named)

    patch.setattr(paging, "Paging", shifted)
    return codes_agree()


def _mean_of_codes(patch: Patch) -> bool:
    _wrap(patch, HiggsLm, "heard", lambda x: x / 8)
    return codes_agree()


def _codebooks_swapped(patch: Patch) -> bool:
    _wrap(patch, HiggsLm, "logits", lambda x: x[:, [0, 2, 1, 3, 4, 5, 6, 7]])
    return codes_agree()


def _nothing_waits(patch: Patch) -> bool:
    """Codebooks that have not begun say sounds."""
    right = torch.Tensor.masked_fill

    def eager(x: Tensor, mask: Tensor, value: Any) -> Tensor:
        return x if value == 1024 and x.shape[1:] == (8,) else right(x, mask, value)

    patch.setattr(torch.Tensor, "masked_fill", eager)
    return codes_agree()


def _no_task_mark(patch: Patch) -> bool:
    _wrap(patch, layout, "rows", lambda rows: rows[1:])
    return codes_agree()


def _no_audio_mark(patch: Patch) -> bool:
    _wrap(patch, layout, "rows", lambda rows: rows[:-1])
    return codes_agree()


def _transcript_left_out(patch: Patch) -> bool:
    right = layout.rows
    patch.setattr(layout, "rows", lambda marks, ids, spoken, clip: right(marks, ids, [], clip))
    return codes_agree(CLONE)


def _transcript_mark_without_transcript(patch: Patch) -> bool:
    right = layout.rows
    patch.setattr(layout, "rows", lambda marks, ids, spoken, clip: right(marks, ids, [0], clip))
    return codes_agree(SILENT_CLONE)


def _clip_not_delayed(patch: Patch) -> bool:
    def plain(self: Any, codes: Tensor, frames: Tensor, rows: int) -> Tensor:
        return functional.pad(codes, (0, 0, 0, rows - codes.shape[1]), value=1025)

    patch.setattr(stages.HiggsModel, "_delayed", plain)
    return codes_agree(CLONE)


def _clip_without_its_tail(patch: Patch) -> bool:
    """The last seven delayed rows left out."""
    right = layout.rows
    patch.setattr(
        layout, "rows", lambda marks, ids, spoken, clip: right(marks, ids, spoken, clip - 7)
    )
    return codes_agree(CLONE)


def _clip_marks_swapped(patch: Patch) -> bool:
    def swap(rows: Tensor) -> Tensor:
        return torch.where(rows >= 1024, 2049 - rows, rows)

    _wrap(patch, stages.HiggsModel, "_delayed", swap)
    return codes_agree(CLONE)


def _end_after_seven(patch: Patch) -> bool:
    """One row more than the machine gives."""
    right = EosSteps.__init__

    def late(self: Any, *args: Any, lag: int, **named: Any) -> None:
        right(self, *args, lag=lag + 1, **named)

    patch.setattr(EosSteps, "__init__", late)
    return codes_agree(SHORT, None)


def _codes_clamped(patch: Patch) -> bool:
    """Control codes to the last sound, not to the first."""
    right = HiggsCodec.decode
    patch.setattr(
        HiggsCodec, "decode", lambda self, codes, *rest: right(self, codes.clamp(max=1023), *rest)
    )
    return wave_agrees()


def _nothing_masked(patch: Patch) -> bool:
    patch.setattr(dac, "_keep", lambda x, real: x)
    return wave_agrees()


def _masked_at_the_front_alone(patch: Patch) -> bool:
    """Invalid frames cleared once, not in every layer."""
    right = dac._keep
    patch.setattr(dac, "_keep", lambda x, real: right(x, real) if x.shape[1] == 16 else x)
    return wave_agrees()


def _no_output_padding(patch: Patch) -> bool:
    """The odd strides' transposed convolutions start a column late."""
    for block in model().sound.acoustic_decoder.block:
        conv = block.get_submodule("conv_t1")
        if block.rate == 5:
            patch.setattr(conv, "padding", (2,))
            patch.setattr(conv, "output_padding", (0,))
            _wrap(patch, conv, "forward", lambda x: x[:, :, :-1])
    return long_wave_agrees()


def _eight_frames_ahead(patch: Patch) -> bool:
    made = host().spec
    patch.setattr(host(), "spec", _replaced(made, ahead_frames=8))
    patch.setattr(model(), "config", _replaced(model().config, context=(10, 8)))
    return long_wave_agrees()


def _eight_frames_behind(patch: Patch) -> bool:
    patch.setattr(host(), "spec", _replaced(host().spec, left_frames=8))
    patch.setattr(model(), "config", _replaced(model().config, context=(8, 10)))
    return long_wave_agrees((15, 15))


def _cropped_too_soon(patch: Patch) -> bool:
    decoder = model().sound.acoustic_decoder
    patch.setattr(decoder, "_context", (decoder._context[0] - 1, *decoder._context[1:]))
    return long_wave_agrees()


def _other_activation(patch: Patch) -> bool:
    patch.setattr(Snake, "forward", lambda self, x: x + torch.sin(self.alpha * x).pow(2))
    return long_wave_agrees()


def _books_swapped(patch: Patch) -> bool:
    """Two codebooks' tables in each other's place."""
    patch.setitem(model().sound._buffers, "starts", model().sound.starts.flip(0))
    return long_wave_agrees()


def _unmasked_norm(patch: Patch) -> bool:
    right = ColumnNorm.forward
    patch.setattr(
        ColumnNorm, "forward", lambda self, x, n: right(self, x, torch.full_like(n, x.shape[2]))
    )
    return clips_agree()


def _unmasked_attention(patch: Patch) -> bool:
    right = attention.attention
    patch.setattr(semantic, "attention", lambda q, k, v, mask: right(q, k, v, None))
    return clips_agree()


def _unmasked_places(patch: Patch) -> bool:
    """What the position convolution sees behind a clip's end."""
    right = Transformer.forward

    def spoilt(self: Transformer, x: Tensor, lengths: Tensor) -> Tensor:
        conv = self.pos_conv_embed
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(
                conv, "forward", lambda y: type(conv).forward(conv, torch.where(y == 0, x, y))
            )
            return right(self, x, lengths)

    patch.setattr(Transformer, "forward", spoilt)
    return clips_agree()


def _last_state_alone(patch: Patch) -> bool:
    """The last layer's output instead of the mean over all."""

    def last(self: Transformer, x: Tensor, lengths: Tensor) -> Tensor:
        real = torch.arange(x.shape[1]) < lengths[:, None]
        x = torch.where(real[..., None], x, 0)
        x = self.layer_norm(x + self.pos_conv_embed(x))
        for layer in self.layers:
            x = layer(x, real)
        return x

    patch.setattr(Transformer, "forward", last)
    return clips_agree()


def _no_silence_around(patch: Patch) -> bool:
    """Every clip takes the way of those that the reference does not pad."""
    patch.setattr(model().sound, "pad", 0)
    return clips_agree()


def _odd_columns(patch: Patch) -> bool:
    """Every second semantic vector, but the wrong ones."""
    _wrap(patch, semantic.Hubert, "forward", lambda out: (out[0].roll(-1, dims=1), out[1]))
    return clips_agree()


def _residual_not_taken(patch: Patch) -> bool:
    for level in list(model().sound.quantizer.quantizers)[:-1]:
        out = level.get_submodule("project_out")
        patch.setattr(out, "forward", lambda x: torch.zeros(*x.shape[:2], 40))
    return clips_agree()


def _replaced(value: Any, **changes: Any) -> Any:
    from dataclasses import replace

    return replace(value, **changes)


SLIPS = sorted(
    (name, slip)
    for name, slip in globals().items()
    if name.startswith("_")
    and name not in ("_wrap", "_replaced")
    and callable(slip)
    and getattr(slip, "__module__", "") == __name__
)


@pytest.mark.parametrize("slip", [s for _, s in SLIPS], ids=[name.strip("_") for name, _ in SLIPS])
def test_slips_are_noticed(slip: Callable[[Patch], bool], monkeypatch: Patch) -> None:
    assert not slip(monkeypatch)


def test_nothing_is_wrong_without_a_slip() -> None:
    assert (
        codes_agree(PLAIN)
        and codes_agree(SHORT, None)
        and codes_agree(CLONE)
        and codes_agree(SILENT_CLONE)
    )
    assert wave_agrees() and long_wave_agrees() and long_wave_agrees((15, 15)) and clips_agree()
