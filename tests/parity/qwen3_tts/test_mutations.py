"""The goldens can fail: each of these slips, small and plausible, makes them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.parity.qwen3_tts.checkpoint import speech_like
from tests.parity.qwen3_tts.rig import CASES, GOLDENS, Rig, host, model, request
from voxserve.models.qwen3_tts import codec, encoder, layout, speaker, stages
from voxserve.models.qwen3_tts.host import Qwen3Host
from voxserve.models.qwen3_tts.lm import TalkerModel
from voxserve.nn import attention, causal_conv, mel, paging, snake, transformer

Patch = pytest.MonkeyPatch
CUSTOM, BASE = "custom_voice-1b7", "base-1b7"
WHOLE, STREAMED, LANGUAGE, DIALECT, INSTRUCT, PENALTY = 0, 1, 2, 4, 8, 12
CLONE_STREAMED, CLONE_LONG_TEXT, CLONE_WHOLE, VECTOR = 18, 19, 20, 23
CLIP_S = 12.3


def codes_agree(number: int, frames: int = 12, pad_row: tuple[int, ...] | None = None) -> bool:
    """Whether the first codes of a case are the golden ones."""
    case = CASES[number]
    rig = Rig(host(case["model"]), model(case["model"]))
    if pad_row is not None:
        rig.spec = replace(rig.spec, pad_row=pad_row)
    (codes,) = rig.speak([rig.host.prompt(request(case, frames))])
    return codes.tolist() == GOLDENS[f"case{number}.codes"][:frames].tolist()


def wave_agrees(number: int) -> bool:
    """Whether the golden codes of a case give its golden wave."""
    case = CASES[number]
    rig = Rig(host(case["model"]), model(case["model"]))
    prompt = rig.host.prompt(request(case, frames=1))
    rig.speak([prompt])
    expected = GOLDENS[f"case{number}.wave"]
    codes = GOLDENS[f"case{number}.codes"][: len(expected) // 1920].long()
    wave = rig.sound(rig.slots - 1, codes, [1, 2] if len(codes) == 3 else [1, 2, 3])
    return bool((wave - expected).abs().max() <= 1e-5)


def long_wave_agrees() -> bool:
    """The same far into a sound, where the window is full."""
    noise = torch.from_numpy(uniform_codes())
    wave = Rig(host(CUSTOM), model(CUSTOM)).sound(0, noise, [30] * 10 + [2])
    expected = GOLDENS["codec.frames298-302"]
    return bool((wave[298 * 1920 :] - expected).abs().max() <= 1e-5)


def uniform_codes() -> Any:
    from tests.parity.qwen3_tts.checkpoint import uniform

    return ((uniform("codes", (330, 16)) + 1) * 1024).astype("int64").clip(0, 2047)[:302]


def clip_codes_agree() -> bool:
    clip = torch.from_numpy(speech_like(CLIP_S))[None]
    half = model(BASE).sound.encoder
    assert half is not None
    with torch.inference_mode():
        codes = half(clip, torch.tensor([clip.shape[1]]))
    return bool((codes[0] == GOLDENS[f"clip{CLIP_S}.codes"]).all())


def voice_agrees() -> bool:
    clip = torch.from_numpy(speech_like(2.0))[None]
    half = model(BASE).language.speaker_encoder
    assert half is not None
    with torch.inference_mode():
        vector = half(clip, torch.tensor([clip.shape[1]]))[0]
    return bool((vector - GOLDENS["clip2.0.speaker"]).abs().max() <= 1e-5)


def _wrap(patch: Patch, owner: Any, name: str, change: Callable[[Any], Any]) -> None:
    """Let `change` spoil what `owner.name` returns."""
    right = getattr(owner, name)
    patch.setattr(owner, name, lambda *a, **k: change(right(*a, **k)))


def _no_penalty(patch: Patch) -> bool:
    patch.setattr(stages, "penalise", lambda logits, seen, penalty: logits)
    return codes_agree(PENALTY, frames=40)


def _control_codes_allowed(patch: Patch) -> bool:
    patch.setattr(stages, "CONTROL_CODES", 1)
    return codes_agree(LANGUAGE)


def _no_query_norm(patch: Patch) -> bool:
    for layer in model(CUSTOM).talker.model.layers:
        patch.setitem(layer.get_submodule("self_attn")._modules, "q_norm", nn.Identity())
    return codes_agree(WHOLE)


def _interleaved_rotation(patch: Patch) -> bool:
    def rotate(x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
        cosines, sines = (
            part[..., : part.shape[-1] // 2].repeat_interleave(2, -1) for part in rope
        )
        even, odd = x[..., ::2], x[..., 1::2]
        return x * cosines + torch.stack((-odd, even), dim=-1).flatten(-2) * sines

    patch.setattr(transformer, "rotate", rotate)
    return codes_agree(WHOLE)


def _positions_from_one(patch: Patch) -> bool:
    """Rotary positions are relative: only a gap between prompt and speech can show."""
    right = attention.Paging

    def shifted(table: Tensor, positions: Tensor, *rest: Any, **named: Any) -> attention.Paging:
        return right(table, positions + (0 if named["fresh"] else 1), *rest, **named)

    patch.setattr(paging, "Paging", shifted)
    return codes_agree(WHOLE)


def _depth_without_bias(patch: Patch) -> bool:
    projection = model(CUSTOM).talker.code_predictor.small_to_mtp_projection
    patch.setitem(projection._parameters, "bias", None)
    return codes_agree(WHOLE)


def _frame_without_its_last_code(patch: Patch) -> bool:
    right = TalkerModel.frame

    def frame(self: TalkerModel, codes: Tensor) -> Tensor:
        table = self.code_predictor.model.codec_embedding[-1]
        spoiled: Tensor = right(self, codes) - table(codes[..., -1])
        return spoiled

    patch.setattr(TalkerModel, "frame", frame)
    return codes_agree(WHOLE)


def _no_text_padding(patch: Patch) -> bool:
    return codes_agree(WHOLE, pad_row=(layout.NONE,))


def _no_text_end_when_streamed(patch: Patch) -> bool:
    _wrap(patch, layout, "streamed", lambda laid: replace(laid, inject=laid.inject[:-1]))
    return codes_agree(10)


def _no_text_end_when_whole(patch: Patch) -> bool:
    _wrap(patch, layout, "whole", lambda laid: replace(laid, rows=[*laid.rows[:-2], laid.rows[-1]]))
    return codes_agree(WHOLE)


def _text_one_step_late(patch: Patch) -> bool:
    pad = host(CUSTOM).config.text_pad
    _wrap(patch, layout, "streamed", lambda laid: replace(laid, inject=[pad, *laid.inject]))
    return codes_agree(STREAMED)


def _language_forgotten(patch: Patch) -> bool:
    patch.setattr(Qwen3Host, "_language", lambda self, request, voice: None)
    return codes_agree(LANGUAGE)


def _dialect_forgotten(patch: Patch) -> bool:
    right = Qwen3Host._language
    patch.setattr(Qwen3Host, "_language", lambda self, request, voice: right(self, request, None))
    return codes_agree(DIALECT)


def _speaker_forgotten(patch: Patch) -> bool:
    right = layout.prefix
    patch.setattr(
        layout,
        "prefix",
        lambda config, role, instructions, language, row: right(
            config, role, instructions, language, None
        ),
    )
    return codes_agree(WHOLE)


def _instructions_without_turn_end(patch: Patch) -> bool:
    _wrap(patch, Qwen3Host, "_instructions", lambda ids: ids[:-1])
    return codes_agree(INSTRUCT)


def _clip_shifted(sizes: Sequence[int]) -> Callable[[Patch], bool]:
    def mutate(patch: Patch) -> bool:
        def shift(laid: layout.Layout) -> layout.Layout:
            rows = [(t, c, clip - 1 if clip > 0 else clip) for t, c, clip in laid.rows]
            return replace(laid, rows=rows)

        _wrap(patch, layout, "continued", shift)
        return all(codes_agree(number) for number in sizes)

    return mutate


def _transcript_forgotten(patch: Patch) -> bool:
    right = layout.continued
    patch.setattr(layout, "continued", lambda c, b, spoken, *a, **k: right(c, b, (), *a, **k))
    return codes_agree(CLONE_LONG_TEXT)


def _voice_vector_forgotten(patch: Patch) -> bool:
    patch.setattr(stages, "SPEAKER", -9)
    return codes_agree(VECTOR)


def _codec_not_behind_the_clip(patch: Patch) -> bool:
    patch.setattr(stages.Qwen3Model, "_start_codec", _start_afresh)
    return wave_agrees(CLONE_STREAMED)


def _start_afresh(self: Any, slots: Tensor, clips: Tensor, rows: Tensor, state: Any) -> None:
    state["codec.continues"][slots] = False


def _window_of_one_less(patch: Patch) -> bool:
    right = attention.WindowKv

    def shorter(past: Tensor, seen: Tensor, lengths: Tensor, window: int) -> attention.WindowKv:
        kv = right(past, seen, lengths, window)
        kv.seen = kv.seen.clamp(max=window - 2)
        return kv

    patch.setattr(codec, "WindowKv", shorter)
    return long_wave_agrees()


def _snake_in_plain_units(patch: Patch) -> bool:
    def forward(self: snake.SnakeBeta, x: Tensor) -> Tensor:
        size = 1.0 / ((1 + self.beta)[:, None] + self.eps)
        return x + size * torch.sin(x * (1 + self.alpha)[:, None]).pow(2)

    patch.setattr(snake.SnakeBeta, "forward", forward)
    return wave_agrees(WHOLE)


def _transposed_convolution_trimmed_left(patch: Patch) -> bool:
    def forward(
        self: causal_conv.CausalConvTranspose1d, x: Tensor, state: Tensor, lengths: Tensor
    ) -> tuple[Tensor, Tensor]:
        out = self.conv(x)
        return out[:, :, out.shape[2] - x.shape[2] * self.stride :], state

    patch.setattr(causal_conv.CausalConvTranspose1d, "forward", forward)
    return wave_agrees(WHOLE)


def _no_layer_scale(patch: Patch) -> bool:
    patch.setattr(transformer.LayerScale, "forward", lambda self, x: x)
    return wave_agrees(WHOLE)


def _encoder_with_a_window(patch: Patch) -> bool:
    def windowed(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        place = torch.arange(queries.shape[1])
        near = place[:, None] - place
        return attention.attention(queries, keys, values, ((near >= 0) & (near < 250))[None])

    patch.setattr(encoder, "causal", windowed)
    return clip_codes_agree()


def _encoder_padded_with_zeros(patch: Patch) -> bool:
    def forward(self: encoder.Downsample, x: Tensor, lengths: Tensor) -> Tensor:
        out: Tensor = self.conv(nn.functional.pad(x, (2, x.shape[2] % 2)))
        return out

    patch.setattr(encoder.Downsample, "forward", forward)
    return clip_codes_agree()


def _speaker_padded_with_zeros(patch: Patch) -> bool:
    patch.setattr(
        speaker, "reflect_pad", lambda x, lengths, left, right: nn.functional.pad(x, (left, right))
    )
    return voice_agrees()


def _residuals_in_parallel(patch: Patch) -> bool:
    def forward(self: speaker.Res2Net, x: Tensor, lengths: Tensor) -> Tensor:
        first, *rest = x.chunk(self.scale, dim=1)
        return torch.cat(
            [first, *(b(p, lengths) for b, p in zip(self.blocks, rest, strict=True))], 1
        )

    patch.setattr(speaker.Res2Net, "forward", forward)
    return voice_agrees()


def _mel_of_power(patch: Patch) -> bool:
    right = mel.magnitudes
    patch.setattr(mel, "magnitudes", lambda *a: right(*a).pow(2))
    return voice_agrees()


MUTATIONS = (
    _no_penalty,
    _control_codes_allowed,
    _no_query_norm,
    _interleaved_rotation,
    _positions_from_one,
    _depth_without_bias,
    _frame_without_its_last_code,
    _no_text_padding,
    _no_text_end_when_streamed,
    _no_text_end_when_whole,
    _text_one_step_late,
    _language_forgotten,
    _dialect_forgotten,
    _speaker_forgotten,
    _instructions_without_turn_end,
    _clip_shifted([CLONE_STREAMED]),
    _clip_shifted([CLONE_WHOLE]),
    _transcript_forgotten,
    _voice_vector_forgotten,
    _codec_not_behind_the_clip,
    _window_of_one_less,
    _snake_in_plain_units,
    _transposed_convolution_trimmed_left,
    _no_layer_scale,
    _encoder_with_a_window,
    _encoder_padded_with_zeros,
    _speaker_padded_with_zeros,
    _residuals_in_parallel,
    _mel_of_power,
)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__qualname__)
def test_the_goldens_notice(mutation: Callable[[Patch], bool], monkeypatch: Patch) -> None:
    assert not mutation(monkeypatch)


def test_the_checks_pass_unchanged() -> None:
    """Otherwise the mutations would prove nothing; all frames are in test_parity.py."""
    assert all(codes_agree(number, frames=2) for number in (WHOLE, STREAMED, CLONE_WHOLE, VECTOR))
    assert wave_agrees(WHOLE) and wave_agrees(CLONE_STREAMED)
    assert long_wave_agrees() and clip_codes_agree() and voice_agrees()
