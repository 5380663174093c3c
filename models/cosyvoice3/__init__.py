"""CosyVoice 3 (Fun-CosyVoice3-0.5B): speech in the voice of a reference clip, as told or as heard.

A Qwen 2 says a code for every 40 ms from the text and the clip's own codes; a diffusion transformer
turns codes into mel frames, block by block behind the clip's; a vocoder makes 24 kHz audio of them.
"""

from collections.abc import Mapping
from typing import Any

from voxserve.models.cosyvoice3.config import CONFIG_FILE, QWEN_FOLDER
from voxserve.models.cosyvoice3.published import LANGUAGE_MODEL, published
from voxserve.plugin import Checkpoint, HostLogic, Plugin, SpeechModel, Target


def _host(checkpoint: Checkpoint) -> HostLogic:
    from voxserve.models.cosyvoice3.host import CosyVoiceHost

    return CosyVoiceHost(checkpoint)


def _load(checkpoint: Checkpoint, target: Target) -> SpeechModel:
    from voxserve.models.cosyvoice3.weights import load

    return load(checkpoint, target)


def _recognises(config: Mapping[str, Any]) -> bool:
    llm = config.get("llm")
    return isinstance(llm, Mapping) and llm.get("!") == LANGUAGE_MODEL


plugin = Plugin(
    host=_host,
    load=_load,
    recognises=_recognises,
    published=published(),
    config_names=(CONFIG_FILE,),
    files=(
        CONFIG_FILE,
        "llm.pt",
        "flow.pt",
        "hift.pt",
        "campplus.onnx",
        "speech_tokenizer_v3.onnx",
        f"{QWEN_FOLDER}/*.json",
        f"{QWEN_FOLDER}/merges.txt",
    ),
)
