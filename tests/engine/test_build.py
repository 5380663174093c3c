"""What the device side refuses before it takes any memory."""

import pytest
import torch

from tests.engine.harness import settings_of, tiny
from tests.parity.qwen3_tts.rig import model
from voxserve.config import EngineConfig
from voxserve.engine.build import build, target_of
from voxserve.plugin import row_invariant


@pytest.fixture
def some_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings are read before a device is touched, so none is needed."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="torch sees no CUDA device"):
        target_of(EngineConfig(device="cuda"))


@pytest.mark.usefixtures("some_gpu")
def test_deterministic_audio_on_a_gpu_takes_fused_kernels() -> None:
    target = target_of(EngineConfig(deterministic=True))
    assert (target.device, target.lm_kernels, target.codec_kernels) == ("cuda", "fused", "fused")
    with pytest.raises(ValueError, match=r"engine\.lm_kernels comes to reference and .* to fused"):
        target_of(EngineConfig(deterministic=True, lm_kernels="reference"))
    with pytest.raises(ValueError, match=r"engine\.codec_kernels to eager"):
        target_of(EngineConfig(deterministic=True, codec_kernels="eager"))
    with pytest.raises(ValueError, match=r"engine\.dtype float32 .* reference .* eager"):
        target_of(EngineConfig(deterministic=True, dtype="float32"))
    assert target_of(EngineConfig(deterministic=True, device="cpu", dtype="float32"))


@pytest.mark.usefixtures("some_gpu")
def test_deterministic_audio_on_a_gpu_takes_a_model_that_can() -> None:
    host, speech = tiny()
    assert not row_invariant(speech)
    with pytest.raises(ValueError, match="on a GPU tiny rounds with the batch"):
        build(settings_of({"engine": {"device": "cuda", "deterministic": True}}), host.spec, speech)


def test_layers_of_torch_round_with_the_batch() -> None:
    assert not row_invariant(model("custom_voice-0b6"))
