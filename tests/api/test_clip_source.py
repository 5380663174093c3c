import asyncio
import base64
import os
from pathlib import Path

import pytest

from voxserve.api.clip_source import ClipSource
from voxserve.api.media_fetch import MediaFetcher
from voxserve.audio.reference import MAX_CLIP_BYTES
from voxserve.errors import InvalidRequestError

DATA = b"\xff\xfbsound of some kind"
BASE64 = base64.b64encode(DATA).decode()


def read(given: str | bytes, folder: Path | None = None) -> bytes:
    return asyncio.run(ClipSource(MediaFetcher(()), folder).read(given))


def refused(given: str | bytes, folder: Path | None = None) -> str:
    with pytest.raises(InvalidRequestError) as error:
        read(given, folder)
    assert error.value.param == "ref_audio"
    assert "/" not in error.value.message
    return error.value.code


@pytest.mark.parametrize(
    "given",
    [
        DATA,
        BASE64,
        f"{BASE64[:8]}\n{BASE64[8:]}",
        f"data:audio/mpeg;base64,{BASE64}",
        f"DATA:audio/wav;codecs=1;BASE64,{BASE64}",
        f"data:;base64,{BASE64}",
    ],
)
def test_what_comes_with_the_request(given: str | bytes) -> None:
    assert read(given) == DATA


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ("data:audio/wav,sound", "ref_audio_invalid"),
        ("data:audio/wav;base64,%%%", "ref_audio_invalid"),
        ("data:audio/wav;base64", "ref_audio_invalid"),
        ("abc", "ref_audio_invalid"),
        (bytes(MAX_CLIP_BYTES + 1), "ref_audio_too_large"),
        (base64.b64encode(bytes(MAX_CLIP_BYTES + 1)).decode(), "ref_audio_too_large"),
        ("A" * 16_000_000, "ref_audio_too_large"),
    ],
)
def test_what_is_wrong_with_it(given: str | bytes, code: str) -> None:
    assert refused(given) == code


def test_files_only_inside_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "media"
    folder.mkdir()
    inside, outside = folder / "a clip.wav", tmp_path / "secret.wav"
    inside.write_bytes(DATA)
    outside.write_bytes(b"secret")
    (folder / "out").symlink_to(outside)
    (folder / "in").symlink_to(inside)
    (folder / "up").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    assert read(f"file://{folder}/a%20clip.wav", folder) == DATA
    assert read(f"file://localhost{folder}/in", folder) == DATA
    assert refused(f"file://{folder}/a%20clip.wav") == "url_not_allowed"
    for name in ("out", "../secret.wav", "%2e%2e/secret.wav", "up/secret.wav", "up/nothing"):
        assert refused(f"file://{folder}/{name}", folder) == "url_not_allowed"
    for url in ("file:///etc/hostname", f"file://other{inside}", f"file://{folder}x", "file:a"):
        assert refused(url, folder) == "url_not_allowed"
    for url in (f"file://{folder}/a%00", "file://[", f"file://{folder}/\ud800"):
        assert refused(url, folder) == "url_not_allowed"
    assert refused(str(inside), folder) == "url_not_allowed"
    for name in ("pipe", "", "nothing"):
        assert refused(f"file://{folder}/{name}", folder) == "ref_audio_unreachable"
