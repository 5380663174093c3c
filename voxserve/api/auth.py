"""API keys: when any is configured, all routes ask for one but /live, /ready and the playground's
files.
"""

import base64
import binascii
import hashlib
import hmac
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from voxserve.api import playground
from voxserve.errors import AuthenticationError

OPEN_PATHS = frozenset({"/live", "/ready"}) | playground.PATHS
NO_KEY = "-"
KEY_PROTOCOL = "voxserve.key."
"""Begins the WebSocket subprotocol in which a browser, which can set no header, sends its key."""

_KEY_ID_DIGITS = 8
_LOOK_S = 1.0

_log = logging.getLogger("voxserve.api")


class KeyRing:
    """The configured keys, held as digests. Comparing takes the same time for every wrong key.

    file: more keys, one a line, `#` begins a comment. It is read again within a second of a change;
    while it cannot be read, the keys read before stay. With a file a key is always asked for, even
    if none is in it. Raises OSError or ValueError when it cannot be read at the start.
    """

    def __init__(
        self,
        keys: Iterable[str],
        file: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fixed = [_digest(key.encode()) for key in keys]
        self._file = file
        self._version: tuple[int, int, int] | None = None
        self._look_at = 0.0
        self._clock = clock
        self._digests = self._fixed
        if file is not None:
            self._version = _version(file)
            self._digests = self._fixed + _read(file)

    def check(self, path: str, headers: Mapping[bytes, bytes]) -> str:
        """The id of the caller's key for the log ("-" where none is needed).

        headers: lower-case names. Raises AuthenticationError.
        """
        if (not self._fixed and self._file is None) or path in OPEN_PATHS:
            return NO_KEY
        self._look()
        given = _digest(_given_key(headers))
        matches = [hmac.compare_digest(given, known) for known in self._digests]
        if not any(matches):
            raise AuthenticationError(
                "no valid API key: send `Authorization: Bearer KEY` or `xi-api-key: KEY`"
            )
        return given.hex()[:_KEY_ID_DIGITS]

    def _look(self) -> None:
        """Read the file again if it is another one than before."""
        if self._file is None or (now := self._clock()) < self._look_at:
            return
        self._look_at = now + _LOOK_S
        try:
            version = _version(self._file)
            if version == self._version:
                return
            self._digests = self._fixed + _read(self._file)
        except (OSError, ValueError) as error:
            _log.warning("the API key file cannot be read, the old keys stay: %s", error)
            return
        self._version = version
        _log.info("read %d API keys again", len(self._digests))


def _version(file: Path) -> tuple[int, int, int]:
    status = file.stat()
    return status.st_ino, status.st_mtime_ns, status.st_size


def _read(file: Path) -> list[bytes]:
    lines = (line.partition("#")[0].strip() for line in file.read_text().splitlines())
    return [_digest(key.encode()) for key in lines if key]


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _given_key(headers: Mapping[bytes, bytes]) -> bytes:
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() == b"bearer" and token:
        return token.strip()
    if key := headers.get(b"xi-api-key", b"").strip():
        return key
    for protocol in headers.get(b"sec-websocket-protocol", b"").split(b","):
        if protocol.strip().startswith(KEY_PROTOCOL.encode()):
            return _from_protocol(protocol.strip().removeprefix(KEY_PROTOCOL.encode()))
    return b""


def _from_protocol(encoded: bytes) -> bytes:
    """base64url without its padding, as subprotocols are tokens."""
    try:
        return base64.urlsafe_b64decode(encoded + b"=" * (-len(encoded) % 4))
    except binascii.Error:
        return b""
