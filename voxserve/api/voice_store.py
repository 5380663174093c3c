"""Uploaded voices: a recording and a small JSON file each, in one folder, under hashed names.

A voice exists once its JSON file does, which is put in place last and never over another one.
"""

import hashlib
import logging
import os
import re
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from voxserve.api.clips import content_key
from voxserve.errors import ConflictError, InvalidRequestError, NotFoundError, VoxserveError

MAX_VOICES = 1000
_SETTLED_NS = 100_000_000
"""Several times the step in which file systems count time."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_KEY = re.compile("[0-9a-f]{64}")

_log = logging.getLogger("voxserve.api")


@dataclass(frozen=True, slots=True)
class StoredVoice:
    """key: `content_key` of the recording. created: Unix time. consent: whatever was written."""

    name: str
    key: str
    created: int
    ref_text: str | None = None
    description: str | None = None
    consent: str | None = None


def check_name(name: str) -> None:
    """Raises InvalidRequestError unless it can be the name of an uploaded voice."""
    if not _NAME.fullmatch(name):
        raise InvalidRequestError(
            f"name is {name[:80]!r}, must be 1 to 64 letters, digits, '_', '.' or '-' of ASCII, "
            "a letter or digit first",
            param="name",
        )


Version = tuple[int, int, int]
"""Of a file or folder: another one, or changed, if this differs."""

_NO_FILE: Version = (0, 0, 0)


class VoiceStore:
    """Reads and writes block; call the methods other than `get` and `all` in a thread, one at a
    time. The folder is made with the first upload. Other servers may write to it too: whoever asks
    for a voice sees what is there now, at the cost of one look at the folder's own times.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._voices: dict[str, StoredVoice] = {}
        self._read: dict[str, tuple[Version, StoredVoice | None]] = {}
        self._version: Version | None = None
        self._sorted: list[StoredVoice] | None = None

    def load(self) -> None:
        """Find what the folder holds, if it has changed. Damaged files are skipped and named in the
        log."""
        try:
            status = os.stat(self._folder)
            version = _version(status)
            if version == self._version:
                return
            read = {entry.name: self._look_at(entry) for entry in os.scandir(self._folder)}
        except FileNotFoundError:
            version, read = None, {}
        except OSError as error:
            _log.warning("the folder of voices cannot be read, the old ones stay: %s", error)
            return
        self._read = read
        self._voices = {voice.name.casefold(): voice for _, voice in read.values() if voice}
        self._sorted = None
        # A second change may leave the times as they are, if it comes as soon as the clock's step.
        settled = version is not None and time.time_ns() - status.st_mtime_ns > _SETTLED_NS
        self._version = version if settled else None

    def _look_at(self, entry: os.DirEntry[str]) -> tuple[Version, StoredVoice | None]:
        """The version of a file, and the voice in it."""
        version = _NO_FILE
        if not entry.name.endswith(".json"):
            return version, None
        try:
            version = _version(entry.stat())
            known = self._read.get(entry.name)
            if known is not None and known[0] == version:
                return known
            voice = msgspec.json.decode(Path(entry.path).read_bytes(), type=StoredVoice)
            check_name(voice.name)
        except FileNotFoundError:
            return _NO_FILE, None
        except (OSError, msgspec.MsgspecError, InvalidRequestError) as error:
            _log.warning("voice file %s is not read: %s", entry.name, error)
            return version, None
        mine = entry.name == self._about_file(voice.name).name and _KEY.fullmatch(voice.key)
        return version, voice if mine else None

    def get(self, name: str | None) -> StoredVoice | None:
        """By name, upper and lower case aside."""
        if name is None:
            return None
        self.load()
        return self._voices.get(name.casefold())

    def all(self) -> list[StoredVoice]:
        """By name. The list is not the caller's own."""
        self.load()
        if self._sorted is None:
            self._sorted = [self._voices[name] for name in sorted(self._voices)]
        return self._sorted

    def audio(self, voice: StoredVoice) -> bytes:
        """The recording as it was uploaded. Raises OSError."""
        return self._audio_file(voice).read_bytes()

    def add(self, name: str, audio: bytes, about: dict[str, Any]) -> StoredVoice:
        """about: the optional fields of StoredVoice.

        Raises ConflictError (`voice_exists`), InvalidRequestError for the name or when the store
        is full, VoxserveError when the disk does not take it.
        """
        check_name(name)
        self.load()
        if len(self._voices) >= MAX_VOICES:
            raise InvalidRequestError(
                f"{MAX_VOICES} voices are stored, which is the limit; delete some first",
                code="too_many_voices",
            )
        if name.casefold() in self._voices:
            raise exists(name)
        voice = StoredVoice(name, content_key(audio), int(time.time()), **about)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.replace(self._written(audio), self._audio_file(voice))
            self._put_in_place(voice)
        except OSError as error:
            _log.error("cannot store a voice: %s", error)
            raise VoxserveError("the voice could not be stored", code="voice_not_stored") from None
        self._voices[name.casefold()] = voice
        self._sorted = None
        return voice

    def remove(self, name: str) -> None:
        """Raises NotFoundError (`voice_not_found`), VoxserveError when the disk does not let go."""
        check_name(name)
        self.load()
        voice = self._voices.get(name.casefold())
        if voice is None:
            raise unknown(name)
        try:
            for file in (self._about_file(voice.name), self._audio_file(voice)):
                file.unlink(missing_ok=True)
        except OSError as error:
            _log.error("cannot delete a voice: %s", error)
            raise VoxserveError(
                "the voice could not be deleted", code="voice_not_deleted"
            ) from None
        self._voices.pop(name.casefold(), None)
        self._sorted = None

    def _put_in_place(self, voice: StoredVoice) -> None:
        """Raises ConflictError when another server was quicker, OSError."""
        written = self._written(msgspec.json.encode(voice))
        try:
            os.link(written, self._about_file(voice.name))
        except FileExistsError:
            raise exists(voice.name) from None
        finally:
            os.unlink(written)

    def _about_file(self, name: str) -> Path:
        return self._folder / f"{_hashed(name)}.json"

    def _audio_file(self, voice: StoredVoice) -> Path:
        """Named after its content too, so that two servers never write the same one otherwise."""
        return self._folder / f"{_hashed(voice.name)}-{voice.key[:24]}.audio"

    def _written(self, content: bytes) -> str:
        """A new file with that content on the disk."""
        handle, path = tempfile.mkstemp(suffix=".tmp", dir=self._folder)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(handle)
        return path


def _version(status: os.stat_result) -> Version:
    return status.st_ino, status.st_mtime_ns, status.st_size


def _hashed(name: str) -> str:
    return hashlib.sha256(name.casefold().encode()).hexdigest()[:40]


def exists(name: str) -> ConflictError:
    return ConflictError(f"there is a voice {name!r} already", param="name", code="voice_exists")


def unknown(name: str) -> NotFoundError:
    return NotFoundError(f"there is no voice {name[:80]!r}", param="name", code="voice_not_found")
