"""Whatever stands in a configuration, what comes out is a configuration or a CheckpointError."""

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from voxserve.checkpoint_config import get
from voxserve.checkpoints import find
from voxserve.errors import CheckpointError
from voxserve.models.cosyvoice3 import plugin as cosyvoice3
from voxserve.models.cosyvoice3.config import CosyVoiceConfig
from voxserve.models.cosyvoice3.limits import spec as cosyvoice3_spec
from voxserve.models.higgs_audio_v3 import plugin as higgs_audio_v3
from voxserve.models.higgs_audio_v3.config import HiggsConfig
from voxserve.models.higgs_audio_v3.limits import spec as higgs_spec
from voxserve.models.higgs_audio_v3.published import CODEC as HIGGS_CODEC
from voxserve.models.mini.config import MiniConfig
from voxserve.models.qwen3_tts import plugin as qwen3_tts
from voxserve.models.qwen3_tts.config import Qwen3Config
from voxserve.models.qwen3_tts.limits import spec as qwen3_spec
from voxserve.models.qwen3_tts.published import CODEC, GENERATION
from voxserve.models.tiny.config import TinyConfig
from voxserve.models.tiny.spec import spec as tiny_spec
from voxserve.plugin import Checkpoint

NAN = float("nan")
ODD: tuple[Any, ...] = (None, "odd", [], ["odd"], {}, {"odd": []}, -1, -0.5, 0, True, NAN)

Read = Callable[[Mapping[str, Any]], object]


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where there is a value, inside of others too. Of long lists and tables, the first alone."""
    if path:
        yield path
    entries = list(value.items() if isinstance(value, dict) else enumerate(value))[:40]
    for key, inner in entries if isinstance(value, dict) else entries[:1]:
        if isinstance(inner, dict | list):
            yield from _places(inner, (*path, key))
        else:
            yield (*path, key)


def _changed(config: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(config)
    inner: Any = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return changed


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    plain = json.loads(json.dumps(config))
    assert isinstance(plain, dict)
    return plain


def _try_all(config: dict[str, Any], read: Read) -> int:
    """How many of the odd values were refused."""
    read(config)
    refused = 0
    for path in _places(config):
        for value in ODD:
            try:
                read(_changed(config, path, value))
            except CheckpointError:
                refused += 1
    return refused


def _dummy(config: Mapping[str, Any]) -> Checkpoint:
    return Checkpoint("odd", None, config, dummy=True)


def _qwen3(config: Mapping[str, Any]) -> object:
    qwen3_tts.recognises(config)
    return qwen3_spec(Qwen3Config.read(_dummy(config)))


def _higgs(config: Mapping[str, Any]) -> object:
    higgs_audio_v3.recognises(config)
    return higgs_spec(HiggsConfig.read(_dummy(config)))


def _cosyvoice3(config: Mapping[str, Any]) -> object:
    cosyvoice3.recognises(config)
    return cosyvoice3_spec(CosyVoiceConfig.read(_dummy(config)))


@pytest.mark.parametrize("name", ["CustomVoice", "Base"])
def test_qwen3_tts(name: str) -> None:
    config = next(c for n, c in qwen3_tts.published.items() if n.endswith(name))
    assert _try_all(_plain(config), _qwen3) > 300


def test_qwen3_tts_codec_and_generation(tmp_path: Path) -> None:
    config = next(iter(qwen3_tts.published.values()))
    (tmp_path / "speech_tokenizer").mkdir()
    codec, generation = (
        tmp_path / "speech_tokenizer/config.json",
        tmp_path / "generation_config.json",
    )

    def read(content: Mapping[str, Any]) -> object:
        codec.write_text(json.dumps(content["codec"]))
        generation.write_text(json.dumps(content["generation"]))
        return qwen3_spec(Qwen3Config.read(Checkpoint("odd", tmp_path, config)))

    assert _try_all(_plain({"codec": CODEC, "generation": GENERATION}), read) > 300


def test_higgs_audio_v3() -> None:
    config = _plain(next(iter(higgs_audio_v3.published.values())))
    config["audio_encoder_config"]["codec_config"] = _plain(HIGGS_CODEC)
    assert _try_all(config, _higgs) > 300


def test_cosyvoice3() -> None:
    config = _plain(next(iter(cosyvoice3.published.values())))
    assert _try_all(config, _cosyvoice3) > 300


def test_tiny_and_mini() -> None:
    config = _plain(find("tiny", dummy=False)[1].config)
    assert _try_all(config, lambda odd: tiny_spec(TinyConfig.read(odd))) > 200
    config = _plain(find("mini", dummy=False)[1].config)
    assert _try_all(config, lambda odd: MiniConfig.read(odd).spec()) > 100


def test_null_is_as_good_as_missing() -> None:
    for config in ({}, {"size": None}):
        with pytest.raises(CheckpointError, match="has no size"):
            get(config, "size")
    assert get({"size": 0}, "size") == 0


def test_lists_that_do_not_go_together_are_refused() -> None:
    config = _plain(next(iter(cosyvoice3.published.values())))
    with pytest.raises(CheckpointError, match="CosyVoice 3"):
        _cosyvoice3(_changed(config, ("hift", "resblock_kernel_sizes"), [3]))
