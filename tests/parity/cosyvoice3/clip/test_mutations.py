"""The goldens can fail: each of these slips, small and plausible, makes them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.parity.cosyvoice3.clip.rig import CLIPS_S, GOLDENS, clip, encoder, heard
from voxserve.models.cosyvoice3 import speaker, speech_tokenizer
from voxserve.nn import mel
from voxserve.nn.attention import attention
from voxserve.nn.causal_conv import masked

Patch = pytest.MonkeyPatch


def codes_agree() -> bool:
    """Of the two longer clips, which are padded."""
    with torch.inference_mode():
        codes, _ = encoder().tokenizer(*encoder().whisper_mel(*heard()))
    return all(
        codes[row, :50].tolist() == GOLDENS[f"clip{seconds}.codes"][:50].tolist()
        for row, seconds in enumerate(CLIPS_S)
        if seconds >= 2
    )


def voices_agree() -> bool:
    with torch.inference_mode():
        vectors = encoder().speaker(*encoder().fbank(*heard()))
    expected = torch.stack([GOLDENS[f"clip{seconds}.speaker"] for seconds in CLIPS_S])
    return bool((vectors - expected).abs().max() <= 1e-5)


def mel_agrees() -> bool:
    audio = clip(CLIPS_S[0])[None]
    found, _ = encoder().prompt_mel(audio, torch.tensor([audio.shape[1]]))
    return bool((found[0] - GOLDENS["mel"]).abs().max() <= 1e-5)


def _wrap(patch: Patch, owner: Any, name: str, change: Callable[[Any], Any]) -> None:
    """Let `change` spoil what `owner.name` returns."""
    right = getattr(owner, name)
    patch.setattr(owner, name, lambda *a, **k: change(right(*a, **k)))


def _interleaved_rotation(patch: Patch) -> bool:
    def rotate(x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
        cosines, sines = (
            part[..., : part.shape[-1] // 2].repeat_interleave(2, -1) for part in rope
        )
        even, odd = x[..., ::2], x[..., 1::2]
        return x * cosines + torch.stack((-odd, even), dim=-1).flatten(-2) * sines

    patch.setattr(speech_tokenizer, "rotate", rotate)
    return codes_agree()


def _no_rotation(patch: Patch) -> bool:
    patch.setattr(speech_tokenizer, "rotate", lambda x, rope: x)
    return codes_agree()


def _attention_to_padding(patch: Patch) -> bool:
    right = attention
    patch.setattr(speech_tokenizer, "attention", lambda q, k, v, mask: right(q, k, v, None))
    return codes_agree()


def _nothing_cleared_behind_the_end(patch: Patch) -> bool:
    patch.setattr(speech_tokenizer, "masked", lambda x, lengths: x)
    return codes_agree()


def _memory_without_its_input(patch: Patch) -> bool:
    for block in encoder().tokenizer.blocks:
        layer = block.get_submodule("attn.fsmn_block")
        right = type(layer).forward
        spoilt = lambda x, layer=layer, right=right: right(layer, x) - x  # noqa: E731
        patch.setattr(layer, "forward", spoilt)
    return codes_agree()


def _digits_from_the_other_end(patch: Patch) -> bool:
    quantizer = encoder().tokenizer.quantizer
    patch.setitem(quantizer._buffers, "powers", quantizer.powers.flip(0))
    return codes_agree()


def _smooth_gelu(patch: Patch) -> bool:
    patch.setattr(functional, "gelu", lambda x, **kind: x * torch.sigmoid(1.702 * x))
    return codes_agree()


def _whisper_without_floor(patch: Patch) -> bool:
    right = torch.maximum
    patch.setattr(torch, "maximum", lambda a, b: a if a.dim() == 3 else right(a, b))
    return codes_agree()


def _loudest_of_the_batch(patch: Patch) -> bool:
    right = Tensor.amax
    patch.setattr(Tensor, "amax", lambda x, dim, keepdim: right(x) if x.dim() == 3 else x)
    return codes_agree()


def _resampling_by_the_nearest(patch: Patch) -> bool:
    resample = encoder().resample
    kernels = torch.zeros_like(resample.kernels)
    kernels[:, :, resample.width] = 1
    patch.setitem(resample._buffers, "kernels", kernels)
    return codes_agree()


def _mean_left_in(patch: Patch) -> bool:
    def forward(self: speaker.SpeakerEncoder, features: Tensor, frames: Tensor) -> Tensor:
        kept = masked(features, frames)
        out: Tensor = self.xvector(self.head(kept, frames), frames)
        return out

    patch.setattr(speaker.SpeakerEncoder, "forward", forward)
    return voices_agree()


def _no_segments(patch: Patch) -> bool:
    _wrap(patch, speaker, "segment_means", lambda means: means * 0)
    return voices_agree()


def _whole_segments_only(patch: Patch) -> bool:
    """The last segment divided by 100 whatever it holds."""

    def means(x: Tensor, frames: Tensor) -> Tensor:
        out = functional.avg_pool1d(functional.pad(x, (0, -x.shape[2] % 100)), 100)
        return out.repeat_interleave(100, dim=2)[:, :, : x.shape[2]]

    patch.setattr(speaker, "segment_means", means)
    return voices_agree()


def _biased_deviation(patch: Patch) -> bool:
    right = speaker.statistics

    def statistics(x: Tensor, frames: Tensor) -> Tensor:
        mean, deviation = right(x, frames).chunk(2, dim=1)
        return torch.cat((mean, deviation * ((frames - 1) / frames).sqrt()[:, None]), dim=1)

    patch.setattr(speaker, "statistics", statistics)
    return voices_agree()


def _padding_in_the_convolutions(patch: Patch) -> bool:
    patch.setattr(speaker.Residual, "forward", _unmasked_residual)
    return voices_agree()


def _unmasked_residual(self: speaker.Residual, x: Tensor, frames: Tensor) -> Tensor:
    return torch.relu(self.conv2(torch.relu(self.conv1(x))) + self.shortcut(x))


def _all_groups_alike(patch: Patch) -> bool:
    for layer in encoder().speaker.xvector.get_submodule("block2").children():
        local = layer.get_submodule("cam_layer.linear_local")
        patch.setattr(local, "dilation", (1,))
        patch.setattr(local, "padding", (1,))
    return voices_agree()


def _hann_for_povey(patch: Patch) -> bool:
    window = torch.hann_window(400, periodic=False)
    patch.setitem(encoder().fbank._buffers, "window", window)
    return voices_agree()


def _slaney_for_kaldi(patch: Patch) -> bool:
    filters = mel.mel_filters(16000, 512, 80, 20.0, 8000.0)
    patch.setitem(encoder().fbank._buffers, "filters", filters)
    return voices_agree()


def _power_for_magnitude(patch: Patch) -> bool:
    _wrap(patch, mel, "magnitudes", lambda found: found.pow(2))
    return mel_agrees()


def _mel_up_to_8_khz(patch: Patch) -> bool:
    filters = mel.mel_filters(24000, 1920, 80, 0.0, 8000.0)
    patch.setitem(encoder().prompt_mel._buffers, "filters", filters)
    return mel_agrees()


CODE_SLIPS = (
    _interleaved_rotation,
    _no_rotation,
    _attention_to_padding,
    _nothing_cleared_behind_the_end,
    _memory_without_its_input,
    _digits_from_the_other_end,
    _smooth_gelu,
    _whisper_without_floor,
    _loudest_of_the_batch,
    _resampling_by_the_nearest,
)
VOICE_SLIPS = (
    _mean_left_in,
    _no_segments,
    _whole_segments_only,
    _biased_deviation,
    _padding_in_the_convolutions,
    _all_groups_alike,
    _hann_for_povey,
    _slaney_for_kaldi,
)
MEL_SLIPS = (_power_for_magnitude, _mel_up_to_8_khz)


def test_without_a_slip_they_agree() -> None:
    assert codes_agree()
    assert voices_agree()
    assert mel_agrees()


@pytest.mark.parametrize("slip", (*CODE_SLIPS, *VOICE_SLIPS, *MEL_SLIPS))
def test_slips_are_found(slip: Callable[[Patch], bool], monkeypatch: Patch) -> None:
    assert not slip(monkeypatch)
