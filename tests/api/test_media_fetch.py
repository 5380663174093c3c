"""Reference clips from the web. The name server and the dialling are the test's own, so that a
listener on this machine can stand for a host of the open internet; the rules are the real ones."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from voxserve.api.media_fetch import MediaFetcher, is_public, resolve
from voxserve.audio.reference import MAX_CLIP_BYTES
from voxserve.errors import InvalidRequestError

PUBLIC, OTHER_PUBLIC = "93.184.216.34", "2606:2800:220:1::1"
PRIVATE = [
    *("127.0.0.1", "127.1.2.3", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1"),
    *("169.254.169.254", "192.0.0.8", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1"),
    *("224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "192.88.99.1"),
    *("::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "64:ff9b::7f00:1"),
    *("64:ff9b:1::7f00:1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "3fff::1"),
    *("fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "5f00::1"),
]
SPELLINGS = [
    *("http://media.test/a", "HTTP://media.test/a", "ftp://media.test/a", "//media.test/a"),
    *("https://evil.test/a", "https://media.test.evil.test/a", "https://xmedia.test/a"),
    *("https://media.test@evil.test/", "https://evil.test#@media.test/", "https://a:b@media.test/"),
    *("https://media.test:0/", "https://media.test:99999/", "https://media.test:x/"),
    *("https:///media.test/", "https:/media.test/", "https:media.test", "https://"),
    *("https://media.test\\@evil.test/", "https://evil.test\\.media.test/", "https://[::1]/"),
    *("https://media.test /", "https://media.test\t/", "https://media.test\r\nHost: x/"),
    *(
        "https://media.test/a b",
        "https://media.test/a\nb",
        "https://media.test/\x00",
        "https://．/",
    ),
    *(
        "https://ｍedia.test/",
        "https://media。test/",
        "https://media.test./",
        "https://media%2etest/",
    ),
]


@dataclass
class Web:
    """Hosts by name, each a function from a request's head to the bytes of the answer."""

    hosts: dict[str, Callable[[str], bytes]]
    addresses: dict[str, list[str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    dialled: list[tuple[str, int, str]] = field(default_factory=list)

    async def resolve(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        return self.addresses.get(host, [PUBLIC])

    async def connect(
        self, address: str, port: int, host: str
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self.dialled.append((address, port, host))

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            writer.write(self.hosts[host](head))
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        try:
            return await asyncio.open_connection(*server.sockets[0].getsockname())
        finally:
            server.close()

    def fetch(self, url: str, *domains: str) -> bytes:
        fetcher = MediaFetcher(domains or ("media.test",), self.resolve, self.connect)
        return asyncio.run(fetcher.fetch(url))


def answer(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


def redirect(target: str) -> Callable[[str], bytes]:
    return lambda head: answer(b"", "302 Found", f"Location: {target}")


def refusal(fetch: Callable[[], object]) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as refused:
        fetch()
    assert refused.value.param == "ref_audio"
    return refused.value


def test_an_allowed_url_is_fetched_from_the_address_that_was_checked() -> None:
    heads = []

    def host(head: str) -> bytes:
        heads.append(head)
        return answer(b"sound")

    web = Web({"media.test": host})
    assert web.fetch("https://MEDIA.test/a.wav?x=1#part") == b"sound"
    assert (web.asked, web.dialled) == (["media.test"], [(PUBLIC, 443, "media.test")])
    lines = heads[0].split("\r\n")
    assert lines[0] == "GET /a.wav?x=1 HTTP/1.1"
    names = {line.partition(":")[0].lower() for line in lines[1:] if line}
    assert names == {"host", "user-agent", "accept", "accept-encoding", "connection"}


def test_domains_are_exact_or_below() -> None:
    web = Web({name: lambda head: answer(b"x") for name in ("a.media.test", "media.test")})
    assert web.fetch("https://a.media.test:8443", "*.media.test") == b"x"
    assert web.dialled[-1][1] == 8443
    assert refusal(lambda: web.fetch("https://media.test/", "*.media.test"))
    assert refusal(lambda: web.fetch("https://a.media.test.evil/", "*.media.test"))
    assert refusal(lambda: web.fetch("https://amedia.test/", "*.media.test"))
    assert refusal(lambda: web.fetch("https://a.media.test/", "media.test"))
    assert len(web.asked) == 1


@pytest.mark.parametrize("url", SPELLINGS)
def test_other_spellings_are_refused_before_a_name_is_looked_up(url: str) -> None:
    web = Web({"media.test": lambda head: answer(b"x"), "evil.test": lambda head: answer(b"y")})
    assert refusal(lambda: web.fetch(url)).code == "url_not_allowed"
    assert not web.asked and not web.dialled


@pytest.mark.parametrize("address", PRIVATE)
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(address)
    web = Web({"media.test": lambda head: answer(b"x")}, {"media.test": [PUBLIC, address]})
    assert refusal(lambda: web.fetch("https://media.test/")).code == "url_not_allowed"
    assert not web.dialled


def test_public_addresses() -> None:
    for address in (PUBLIC, OTHER_PUBLIC, "8.8.8.8", "1.1.1.1", "2a00:1450:4001:80b::200e"):
        assert is_public(address)


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0"]
)
def test_this_machine_is_refused_even_if_it_was_allowed(host: str) -> None:
    """The system's own name look-up, which reads odd spellings of addresses."""
    dialled: list[str] = []

    async def connect(address: str, port: int, host: str) -> None:
        dialled.append(address)

    fetcher = MediaFetcher((host,), resolve, connect)  # type: ignore[arg-type]
    error = refusal(lambda: asyncio.run(fetcher.fetch(f"https://{host}:8443/")))
    assert error.code in ("url_not_allowed", "ref_audio_unreachable")
    assert not dialled


def test_redirects_are_followed_three_times_and_checked_each_time() -> None:
    hosts = {f"r{n}.test": redirect(f"https://r{n + 1}.test/x") for n in range(5)}
    hosts["r3.test"] = lambda head: answer(b"end")
    web = Web(hosts)
    names = tuple(hosts)
    assert web.fetch("https://r0.test/", *names) == b"end"
    assert web.asked == ["r0.test", "r1.test", "r2.test", "r3.test"]
    hosts["r3.test"] = redirect("https://r4.test/")
    assert refusal(lambda: web.fetch("https://r0.test/", *names)).code == "ref_audio_unreachable"
    web.addresses["r2.test"] = ["10.0.0.1"]
    web.dialled.clear()
    assert refusal(lambda: web.fetch("https://r0.test/", *names)).code == "url_not_allowed"
    assert [host for _, _, host in web.dialled] == ["r0.test", "r1.test"]


@pytest.mark.parametrize(
    "target", ["http://media.test/", "https://evil.test/", "file:///etc/hostname", "//evil.test/"]
)
def test_redirects_to_elsewhere(target: str) -> None:
    web = Web({"media.test": redirect(target)})
    assert refusal(lambda: web.fetch("https://media.test/")).code == "url_not_allowed"
    assert len(web.dialled) == 1


@pytest.mark.parametrize("host", ["a..media.test", ".media.test", f"{'a' * 64}.media.test"])
def test_names_that_are_none(host: str) -> None:
    fetcher = MediaFetcher(("*.media.test",))
    refused = refusal(lambda: asyncio.run(fetcher.fetch(f"https://{host}/")))
    assert refused.code == "ref_audio_unreachable"


def test_a_redirect_to_no_url() -> None:
    web = Web({"media.test": redirect("https://[")})
    assert refusal(lambda: web.fetch("https://media.test/")).code == "ref_audio_unreachable"


def test_a_name_that_changes_its_address_gains_nothing() -> None:
    """Resolved once a request: the second answer of the name server is never asked for."""
    web = Web({"media.test": lambda head: answer(b"x")})
    answers = iter([[PUBLIC], ["127.0.0.1"]])

    async def rebinding(host: str, port: int) -> list[str]:
        return next(answers)

    fetcher = MediaFetcher(("media.test",), rebinding, web.connect)
    assert asyncio.run(fetcher.fetch("https://media.test/")) == b"x"
    assert [address for address, _, _ in web.dialled] == [PUBLIC]
    assert refusal(lambda: asyncio.run(fetcher.fetch("https://media.test/"))).code == (
        "url_not_allowed"
    )


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (answer(b"x", "404 Not Found"), "ref_audio_unreachable"),
        (answer(b"12345")[:-2], "ref_audio_unreachable"),
        (b"220 smtp ready\r\n", "ref_audio_unreachable"),
        (b"", "ref_audio_unreachable"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 40_000, "ref_audio_unreachable"),
        (answer(bytes(MAX_CLIP_BYTES + 1)), "ref_audio_too_large"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + bytes(MAX_CLIP_BYTES + 1), "ref_audio_too_large"),
    ],
)
def test_bad_answers(reply: bytes, code: str) -> None:
    web = Web({"media.test": lambda head: reply})
    assert refusal(lambda: web.fetch("https://media.test/")).code == code


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\nabc",
        answer(b"abc"),
    ],
)
def test_every_framing_of_a_body(reply: bytes) -> None:
    assert Web({"media.test": lambda head: reply}).fetch("https://media.test/") == b"abc"


def test_slow_hosts_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voxserve.api.media_fetch.TIMEOUT_S", 0.1)

    async def never(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    def fetch() -> Awaitable[bytes]:
        return MediaFetcher(("media.test",), never).fetch("https://media.test/")

    error = refusal(lambda: asyncio.run(fetch()))  # type: ignore[arg-type]
    assert error.code == "ref_audio_unreachable" and "0.1 s" in error.message
