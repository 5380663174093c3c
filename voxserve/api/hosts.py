"""The names that a server may be asked by.

A page can have its own name resolve to this machine once it is loaded (DNS rebinding). Its browser
then takes the server for the page's own host, so no check of origins helps: the `Host` header,
which still holds that name, is all there is to tell such a request by. An address in its place
cannot have been rebound.
"""

import ipaddress
import re
from collections.abc import Mapping

from voxserve.config import ApiConfig
from voxserve.errors import ForbiddenError

ANY = "*"
_BRACKETED = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::\d*)?")
_PORT = re.compile(r":\d*$")
_SHOWN_CHARS = 80


class HostCheck:
    """On where `allowed_hosts` says so; and without keys on a loopback address, as nothing else
    keeps the pages that a user of this machine reads from the server."""

    def __init__(self, config: ApiConfig) -> None:
        alone = is_loopback(config.host) and not config.asks_for_key
        self._on = (alone or bool(config.allowed_hosts)) and ANY not in config.allowed_hosts
        origins = (origin.partition("://")[2] for origin in config.cors_origins)
        self._names = {_name(each) for each in (config.host, *config.allowed_hosts, *origins)}

    def check(self, headers: Mapping[bytes, bytes]) -> None:
        """headers: lower-case names. Browsers always send a Host, so one that is absent passes.

        Raises ForbiddenError (`host_not_allowed`).
        """
        given = headers.get(b"host")
        if not self._on or given is None:
            return
        host = given.decode("latin-1")
        name = _name(host)
        if name in self._names or _is_local_name(name) or _is_address(name):
            return
        raise ForbiddenError(
            f"the Host header is {host[:_SHOWN_CHARS]!r}, which is no name of this server: "
            "ask for localhost, or add the name to api.allowed_hosts",
            param="host",
            code="host_not_allowed",
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it. Names other than localhost count as reachable."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _name(host: str) -> str:
    """Without the port, the brackets of an IPv6 address, and the dot of a full name."""
    if bracketed := _BRACKETED.fullmatch(host):
        return bracketed[1]
    if _is_address(host):  # IPv6 without brackets
        return host
    return _PORT.sub("", host).removesuffix(".").lower()


def _is_local_name(name: str) -> bool:
    """Nobody can register these."""
    return name == "localhost" or name.endswith(".localhost")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
