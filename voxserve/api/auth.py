"""API keys: every route but /live and /ready asks for one when any is configured."""

import hashlib
import hmac
from collections.abc import Iterable, Mapping

from voxserve.errors import AuthenticationError

OPEN_PATHS = frozenset({"/live", "/ready"})
NO_KEY = "-"
_KEY_ID_DIGITS = 8


class KeyRing:
    """The configured keys, held as digests. Comparing takes the same time for every wrong key."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = [_digest(key.encode()) for key in keys]

    def check(self, path: str, headers: Mapping[bytes, bytes]) -> str:
        """The id of the caller's key for the log ("-" where none is needed).

        headers: lower-case names. Raises AuthenticationError.
        """
        if not self._digests or path in OPEN_PATHS:
            return NO_KEY
        given = _digest(_given_key(headers))
        matches = [hmac.compare_digest(given, known) for known in self._digests]
        if not any(matches):
            raise AuthenticationError(
                "no valid API key: send `Authorization: Bearer KEY` or `xi-api-key: KEY`"
            )
        return given.hex()[:_KEY_ID_DIGITS]


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _given_key(headers: Mapping[bytes, bytes]) -> bytes:
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() == b"bearer" and token:
        return token.strip()
    return headers.get(b"xi-api-key", b"").strip()
