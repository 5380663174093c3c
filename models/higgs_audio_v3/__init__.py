"""Higgs Audio v3 TTS: a Qwen 3 body that says eight delayed codes a step, and a DAC-like codec.

Speaks without a voice of its own (each seed another one) or in the voice of a reference clip, and
follows control tags inside the text. The codec is not causal and is decoded in windows.
"""

from collections.abc import Mapping
from typing import Any

from voxserve.models.higgs_audio_v3.published import MODEL_TYPE, published
from voxserve.plugin import Checkpoint, HostLogic, Plugin, SpeechModel, Target


def _host(checkpoint: Checkpoint) -> HostLogic:
    from voxserve.models.higgs_audio_v3.host import HiggsHost

    return HiggsHost(checkpoint)


def _load(checkpoint: Checkpoint, target: Target) -> SpeechModel:
    from voxserve.models.higgs_audio_v3.stages import load

    return load(checkpoint, target)


def _recognises(config: Mapping[str, Any]) -> bool:
    encoder = config.get("audio_encoder_config")
    kind = encoder.get("encoder_type", "discrete") if isinstance(encoder, Mapping) else "discrete"
    return config.get("model_type") == MODEL_TYPE and kind == "discrete"


plugin = Plugin(host=_host, load=_load, recognises=_recognises, published=published())
