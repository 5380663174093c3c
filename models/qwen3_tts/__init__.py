"""Qwen3-TTS at 12 Hz: CustomVoice, VoiceDesign and Base, both sizes and their fine-tunes.

A talker says the first of a frame's sixteen codes from text and the frames before, a small depth
transformer the other fifteen, and a causal codec turns frames into 24 kHz audio. What a checkpoint
can do (voices, languages, instructions, cloning) follows from its configuration.
"""

from collections.abc import Mapping
from typing import Any

from voxserve.models.qwen3_tts.published import published
from voxserve.plugin import Checkpoint, HostLogic, Plugin, SpeechModel, Target


def _host(checkpoint: Checkpoint) -> HostLogic:
    from voxserve.models.qwen3_tts.host import Qwen3Host

    return Qwen3Host(checkpoint)


def _load(checkpoint: Checkpoint, target: Target) -> SpeechModel:
    from voxserve.models.qwen3_tts.stages import load

    return load(checkpoint, target)


def _recognises(config: Mapping[str, Any]) -> bool:
    tokenizer = config.get("tokenizer_type", "qwen3_tts_tokenizer_12hz")
    return config.get("model_type") == "qwen3_tts" and tokenizer == "qwen3_tts_tokenizer_12hz"


plugin = Plugin(host=_host, load=_load, recognises=_recognises, published=published())
