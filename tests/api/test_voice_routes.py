"""What is refused at once, since no text could ever be spoken so. The model is CosyVoice 3, which
wants longer clips than the API does; no engine runs."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from tests.audio.recordings import noise
from voxserve.api.app import create_app
from voxserve.api.units import check_short_text, whole_units
from voxserve.checkpoints import find
from voxserve.config import load_config
from voxserve.errors import InvalidRequestError
from voxserve.plugin import HostLogic
from voxserve.requests import ReferenceClip, SpeechRequest

CONTEXT = 2048
CLIP = ReferenceClip("clip", np.zeros(24_000 * 10, np.float32), "The quick brown fox.")
TALK = SpeechRequest("Hello there. " * 200, clip=CLIP)
LONG = "a. " * 600


@cache
def host() -> HostLogic:
    plugin, checkpoint = find("FunAudioLLM/Fun-CosyVoice3-0.5B-2512", dummy=True)
    return plugin.host(checkpoint)


@pytest.fixture
def upload(tmp_path: Path) -> Callable[..., Any]:
    app = create_app(load_config(None, {"api": {"voices_dir": str(tmp_path / "voices")}}))
    app.state.service._host = host()

    def post(seconds: float, **fields: str) -> Any:
        files = {"audio": ("me.wav", noise(seconds))}
        data = {"name": "anna", **fields}
        return TestClient(app, base_url="http://localhost").post(
            "/v1/audio/voices", data=data, files=files
        )

    return post


def test_an_upload_must_be_long_enough_for_the_model(upload: Callable[..., Any]) -> None:
    error = upload(1.2).json()["error"]
    assert (error["code"], error["param"]) == ("ref_audio_invalid", "audio")
    assert "has 1.20 s, must have 1.52 to 30 s" in error["message"]
    assert upload(1.6).status_code == 201


def test_an_upload_must_leave_room_for_a_text(upload: Callable[..., Any]) -> None:
    error = upload(2.0, ref_text=LONG).json()["error"]
    assert (error["code"], error["param"]) == ("invalid_parameter", "ref_text")
    assert error["message"].startswith(f"ref_text has {len(LONG)} characters")
    assert upload(2.0, ref_text=LONG[:100]).status_code == 201


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"clip": replace(CLIP, text=LONG)}, "ref_text"),
        ({"instructions": LONG}, "instructions"),
    ],
)
def test_the_field_that_leaves_no_room_is_named(changes: dict[str, Any], param: str) -> None:
    asked = replace(TALK, **changes)
    for check in (whole_units, check_short_text):
        with pytest.raises(InvalidRequestError, match=f"{param} has 1800 characters") as caught:
            check(host(), asked, CONTEXT)
        assert caught.value.param == param
    assert len(whole_units(host(), TALK, CONTEXT)) > 1
    check_short_text(host(), TALK, CONTEXT)
