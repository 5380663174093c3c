"""Where the bytes of a reference clip come from: the request itself, a URL, a folder."""

import asyncio
import base64
import binascii
import os
import re
import stat
from pathlib import Path
from urllib.parse import unquote, urlsplit

from voxserve.api.media_fetch import MediaFetcher, not_allowed
from voxserve.audio.decode import invalid
from voxserve.audio.reference import MAX_CLIP_BYTES, check_size
from voxserve.errors import InvalidRequestError

_SCHEME = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]*):")
_DATA_URI = re.compile(r"data:[^,]{0,200};base64,", re.IGNORECASE)
_LIKE_A_PATH = re.compile(r"^[\\/.~]|[:.\\@%\[]|//")
_LONGEST_PATH = 4096
_BASE64_OF_LIMIT = (MAX_CLIP_BYTES + 2) // 3 * 4


class ClipSource:
    """fetcher: for https URLs. folder: what `file:` URLs may name, None for nothing."""

    def __init__(self, fetcher: MediaFetcher, folder: Path | None) -> None:
        self._fetcher = fetcher
        self._folder = folder

    async def read(self, given: str | bytes) -> bytes:
        """The bytes of an upload, a data URI, plain base64, or an allowed URL.

        Raises InvalidRequestError: `ref_audio_invalid`, `ref_audio_too_large`,
        `ref_audio_unreachable`, `url_not_allowed`.
        """
        if isinstance(given, bytes):
            check_size(given)
            return given
        scheme = _SCHEME.match(given[:64])
        match scheme[1].lower() if scheme else "":
            case "":
                return await asyncio.to_thread(_from_base64, given)
            case "data":
                return await asyncio.to_thread(_from_data_uri, given)
            case "https":
                return await self._fetcher.fetch(given)
            case "file" if self._folder is not None:
                return await asyncio.to_thread(_from_folder, given, self._folder)
        raise not_allowed("URLs of this kind are not read; send the recording itself")


def _from_data_uri(given: str) -> bytes:
    head = _DATA_URI.match(given)
    if head is None:
        raise invalid("ref_audio is a data URI, but not one of the form data:TYPE;base64,…")
    return _from_base64(given[head.end() :], data_uri=True)


def _from_base64(given: str, *, data_uri: bool = False) -> bytes:
    if len(given) > _BASE64_OF_LIMIT * 1.1:
        raise InvalidRequestError(
            f"ref_audio has {len(given)} characters of base64, at most {_BASE64_OF_LIMIT}",
            param="ref_audio",
            code="ref_audio_too_large",
        )
    try:
        data = base64.b64decode("".join(given.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        if not data_uri and _LIKE_A_PATH.search(given[:_LONGEST_PATH]):
            raise not_allowed("ref_audio is neither base64 nor a data URI") from error
        raise invalid("ref_audio is not valid base64") from error
    check_size(data)
    return data


def _from_folder(url: str, folder: Path) -> bytes:
    """A regular file inside the folder, whatever links lie on the way."""
    try:
        parts = urlsplit(url)
        path = unquote(parts.path)
        root, real = os.path.realpath(folder), os.path.realpath(path)
    except ValueError as error:
        raise not_allowed("the file URL is not valid") from error
    if parts.netloc not in ("", "localhost"):
        raise not_allowed("the file is on another machine")
    outside = not_allowed("the file is outside the folder that may be read")
    if not _inside(real, root):
        raise outside
    try:
        # A pipe would block without O_NONBLOCK.
        handle = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise _no_file("cannot be read") from error
    try:
        # Where it really is: a folder on the way may have been exchanged meanwhile.
        if not _inside(os.readlink(f"/proc/self/fd/{handle}"), root):
            raise outside
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise _no_file("is not a regular file")
        with os.fdopen(os.dup(handle), "rb") as file:
            data = file.read(MAX_CLIP_BYTES + 1)
    finally:
        os.close(handle)
    check_size(data)
    return data


def _inside(path: str, root: str) -> bool:
    return os.path.commonpath((path, root)) == root


def _no_file(what: str) -> InvalidRequestError:
    return InvalidRequestError(f"the file {what}", param="ref_audio", code="ref_audio_unreachable")
