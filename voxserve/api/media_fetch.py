"""Reference clips from the web: https, named domains and public addresses only.

A name is resolved once and the connection goes to the address that was checked, so a name server
that changes its mind gains nothing. Environment proxies, cookies and credentials are not used.
"""

import asyncio
import ipaddress
import re
import socket
import ssl
from collections.abc import Awaitable, Callable
from urllib.parse import urljoin

import httptools

from voxserve.audio.reference import MAX_CLIP_BYTES
from voxserve.errors import InvalidRequestError

MAX_REDIRECTS = 3
TIMEOUT_S = 10.0
_MAX_HEAD_BYTES = 64 * 1024
_READ_BYTES = 64 * 1024
_REDIRECTS = (301, 302, 303, 307, 308)
# Stricter than the standard: no credentials, no address in brackets, no sign that two parsers
# might read in two ways.
_URL = re.compile(r"https://([a-z0-9.-]{1,253})(?::(\d{1,5}))?([/?][!-~]*)?", re.IGNORECASE)

# What `is_global` lets pass, in some versions of Python at least: translators and tunnels to other
# addresses, and ranges for protocols and for documentation.
_NO_HOSTS = tuple(
    map(
        ipaddress.ip_network,
        ("192.0.0.0/24", "192.88.99.0/24", "2001::/23", "2002::/16", "3fff::/20"),
    )
)
_GLOBAL_V6 = ipaddress.ip_network("2000::/3")

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Resolve = Callable[[str, int], Awaitable[list[str]]]
Connect = Callable[[str, int, str], Awaitable[Streams]]


def not_allowed(why: str) -> InvalidRequestError:
    return InvalidRequestError(why, param="ref_audio", code="url_not_allowed")


def is_public(address: str) -> bool:
    """Whether an address belongs to a host of the open internet, and not to one behind another.

    IPv6 addresses that carry an IPv4 address inside (mapped, translated, 6to4, Teredo) are refused.
    """
    ip = ipaddress.ip_address(address.partition("%")[0])
    if ip.is_multicast or not ip.is_global or (ip.version == 6 and ip not in _GLOBAL_V6):
        return False
    return not any(ip in network for network in _NO_HOSTS)


async def resolve(host: str, port: int) -> list[str]:
    """The addresses of a name. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


async def connect(address: str, port: int, host: str) -> Streams:
    """A TLS connection to `address` whose certificate must be that of `host`. Raises OSError."""
    return await asyncio.open_connection(
        address, port, ssl=ssl.create_default_context(), server_hostname=host, limit=_READ_BYTES
    )


class MediaFetcher:
    """domains: exact names, or `*.example.org` for every name below. None of them: all is refused.

    resolve and connect: how names become addresses and addresses become connections.
    """

    def __init__(
        self, domains: tuple[str, ...], resolve: Resolve = resolve, connect: Connect = connect
    ) -> None:
        self._domains = tuple(domain.lower() for domain in domains)
        self._resolve = resolve
        self._connect = connect

    async def fetch(self, url: str) -> bytes:
        """The body. Raises InvalidRequestError: `url_not_allowed`, `ref_audio_unreachable` or
        `ref_audio_too_large`."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                for _ in range(MAX_REDIRECTS + 1):
                    response = await self._get(url)
                    if response.status not in _REDIRECTS:
                        return response.content()
                    url = urljoin(url, response.headers.get(b"location", b"").decode("latin-1"))
        except TimeoutError as error:
            raise _unreachable(f"took more than {TIMEOUT_S:g} s") from error
        except (OSError, ValueError, httptools.HttpParserError) as error:
            # ValueError: names that cannot be looked up, redirects to what is no URL.
            raise _unreachable("cannot be fetched") from error
        raise _unreachable(f"redirects more than {MAX_REDIRECTS} times")

    async def _get(self, url: str) -> "_Response":
        """One request, redirects not followed."""
        host, port, target = self._checked(url)
        addresses = await self._resolve(host, port)
        if not addresses or not all(is_public(address) for address in addresses):
            raise not_allowed("the URL leads to an address that is not public")
        reader, writer = await self._connect(addresses[0], port, host)
        try:
            name = host if port == 443 else f"{host}:{port}"
            writer.write(
                f"GET {target} HTTP/1.1\r\nHost: {name}\r\nUser-Agent: voxserve\r\n"
                "Accept: audio/*, */*;q=0.5\r\nAccept-Encoding: identity\r\n"
                "Connection: close\r\n\r\n".encode("ascii")
            )
            response = _Response()
            while not response.complete and (data := await reader.read(_READ_BYTES)):
                response.feed(data)
            return response
        finally:
            writer.close()

    def _checked(self, url: str) -> tuple[str, int, str]:
        """(host, port, path and query) of an allowed URL. Raises InvalidRequestError."""
        match = _URL.fullmatch(url.partition("#")[0])
        if match is None:
            raise not_allowed("only plain https URLs of allowed domains are fetched")
        host, port = match[1].lower(), int(match[2] or 443)
        if not any(_covers(domain, host) for domain in self._domains) or not 0 < port < 65536:
            raise not_allowed("the URL's domain is not one that this server fetches from")
        target = match[3] or "/"
        return host, port, target if target.startswith("/") else f"/{target}"


class _Response:
    """What httptools calls back with, under the caps. complete: no more needs to be read."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.complete = False
        self._parser = httptools.HttpResponseParser(self)
        self._head_done = False
        self._head_bytes = 0
        self._body = bytearray()

    def feed(self, data: bytes) -> None:
        if not self._head_done:
            self._head_bytes += len(data)
            if self._head_bytes > _MAX_HEAD_BYTES + _READ_BYTES:
                raise _unreachable("answers with too long a head")
        self._parser.feed_data(data)
        if len(self._body) > MAX_CLIP_BYTES:
            raise InvalidRequestError(
                f"the recording has more than {MAX_CLIP_BYTES} bytes",
                param="ref_audio",
                code="ref_audio_too_large",
            )

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        self._head_done = True
        self.status = self._parser.get_status_code()
        # The body of a redirect is of no use.
        self.complete = self.status in _REDIRECTS

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        self.complete = True

    def content(self) -> bytes:
        """Raises InvalidRequestError unless it is a whole answer with status 200."""
        if self.status != 200:
            raise _unreachable(f"answers with status {self.status}")
        framed = {b"content-length", b"transfer-encoding"} & self.headers.keys()
        if framed and not self.complete:
            raise _unreachable("ends before its time")
        return bytes(self._body)


def _covers(domain: str, host: str) -> bool:
    return host.endswith(domain[1:]) if domain.startswith("*.") else host == domain


def _unreachable(what: str) -> InvalidRequestError:
    return InvalidRequestError(f"the URL {what}", param="ref_audio", code="ref_audio_unreachable")
