"""Malformed handshakes, frames and messages for the WebSocket routes, by a seed."""

import json
import random
import struct
from typing import Any

PATH = "/v1/audio/speech/stream"
PATHS = (
    *(PATH, PATH, "/v1/text-to-speech/ryan/stream-input"),
    "/v1/text-to-speech/ryan/multi-stream-input?output_format=pcm_24000",
)
"""One of them twice, as it has more to it than the others."""

_TEXT, _BINARY, _CLOSE, _PING, _PONG = 1, 2, 8, 9, 10
_WORDS = ("", " ", "word", "é", "\u0000", "\ud800", "🙂" * 9, "a" * 5000, "-1", "1e999", "../x")
_TYPES = (
    *("session.config", "input.text", "input.flush", "input.commit", "input.done", "input.cancel"),
    *("playback.report", "ping", "session.close", "audio.start", "", "x" * 300),
)
_FIELDS = (
    *(
        "text",
        "context_id",
        "played_ms",
        "voice",
        "response_format",
        "sample_rate",
        "speed",
        *("seed", "contextId", "flush", "close_context", "close_socket", "voice_settings"),
    ),
    *("stream_audio", "audio_transport", "max_ahead_ms", "idle_timeout_s", "split_granularity"),
    *("event_id", "compat", "extra_params", "ref_audio", "nothing", "max_buffer_delay_ms"),
)


def frame(
    opcode: int, payload: bytes, *, fin: bool = True, rsv: int = 0, mask: bool = True
) -> bytes:
    """One frame as a client would send it, or as none should."""
    head = bytes([fin << 7 | rsv << 4 | opcode])
    size = len(payload)
    if size < 126:
        head += bytes([mask << 7 | size])
    elif size < 65_536:
        head += bytes([mask << 7 | 126]) + struct.pack(">H", size)
    else:
        head += bytes([mask << 7 | 127]) + struct.pack(">Q", size)
    if not mask:
        return head + payload
    # A mask of zeros is as good as any other.
    return head + bytes(4) + payload


def text(content: str) -> bytes:
    return frame(_TEXT, content.encode("utf-8", "surrogatepass"))


def broken(dice: random.Random) -> bytes:
    """A frame that no client may send: the connection must end, and nothing else."""
    noise = dice.randbytes(dice.randrange(1, 200))
    kinds = (
        lambda: noise,
        lambda: frame(dice.choice((3, 4, 7, 11, 15)), noise[:100]),
        lambda: frame(_TEXT, noise[:100], rsv=dice.randrange(1, 8)),
        lambda: frame(_TEXT, b'{"type":"ping"}', mask=False),
        lambda: frame(0, noise[:100]),
        lambda: frame(_PING, bytes(126)),
        lambda: frame(_PING, b"", fin=False),
        lambda: frame(_TEXT, b"\xff\xfe" + noise),
        lambda: frame(_TEXT, b"a", fin=False) + frame(_TEXT, b"b"),
        lambda: frame(_CLOSE, struct.pack(">H", dice.randrange(0, 65_536))),
        lambda: frame(_CLOSE, b"\x03"),
        lambda: frame(_CLOSE, b"\x03\xe8\xff\xff"),
        lambda: bytes([0x81, 0xFF]) + struct.pack(">Q", dice.getrandbits(64)),
        lambda: frame(_BINARY, noise),
        lambda: frame(_TEXT, b'{"type":"ping"}')[: dice.randrange(1, 8)],
    )
    return dice.choice(kinds)()


def message(dice: random.Random) -> bytes:
    """A well-made frame whose message may make no sense."""
    kind = dice.randrange(10)
    if kind == 0:
        return text(dice.choice(("", "{", "[]", "null", "1", '"a"', "{}", "[" * 5000, '{"a":NaN}')))
    if kind == 1:
        return frame(_PING, dice.randbytes(dice.randrange(126)))
    if kind == 2:
        half = json.dumps({"type": "ping"}).encode()
        return frame(_TEXT, half[:5], fin=False) + frame(_PONG, b"") + frame(0, half[5:])
    names = dice.sample(_FIELDS, dice.randrange(5))
    content: dict[str, Any] = {name: _value(dice) for name in names}
    if dice.random() < 0.9:
        content["type"] = dice.choice(_TYPES)
    return text(json.dumps(content))


def _value(dice: random.Random, depth: int = 0) -> Any:
    kinds = (
        lambda: dice.choice(_WORDS),
        lambda: dice.choice((0, -1, 1, 2**63, 2**70, 24_000, 0.5, -0.0, 1e308)),
        lambda: dice.choice((True, False, None)),
        lambda: [_value(dice, depth + 1) for _ in range(dice.randrange(3))] if depth < 3 else [],
        lambda: {dice.choice(_WORDS): _value(dice, depth + 1)} if depth < 40 else {},
    )
    return dice.choice(kinds)()


def handshake(host: str, extra: dict[str, str] | None = None, path: str = PATH) -> bytes:
    """The one right way to begin, with more headers if wanted."""
    return _request(host, {**(extra or {})}, path=path)


def bad_handshake(dice: random.Random, host: str) -> bytes:
    """A beginning that is wrong in one way."""
    kinds = (
        lambda: _request(host, {"Sec-WebSocket-Key": None}),
        lambda: _request(host, {"Sec-WebSocket-Key": "short"}),
        lambda: _request(host, {"Sec-WebSocket-Version": dice.choice(("12", "x", "", "1" * 99))}),
        lambda: _request(host, {"Upgrade": dice.choice(("h2c", "", "websocket, h2c", "\x00"))}),
        lambda: _request(host, {"Connection": dice.choice(("close", "", "keep-alive"))}),
        lambda: _request(host, {"Host": dice.choice(("", "a b", "x" * 300))}),
        lambda: _request(host, {"Origin": dice.choice(("https://evil.example", "null", "//"))}),
        lambda: _request(host, {"Sec-WebSocket-Extensions": "permessage-deflate; " + "x" * 2000}),
        lambda: _request(
            host, {"Sec-WebSocket-Protocol": dice.choice((",", "voxserve.key.%", ""))}
        ),
        lambda: _request(host, {"Content-Length": dice.choice(("10", "-1", "x"))}) + b"0123456789",
        lambda: _request(host, {f"X-{n}": "y" * 100 for n in range(dice.randrange(900))}),
        lambda: _request(host, {}, method=dice.choice(("POST", "HEAD", "G T", "\x01"))),
        lambda: _request(host, {}, path=dice.choice(("/" * 300, "/%zz", "*", "//x", PATH + "/.."))),
        lambda: _request(host, {"X-SLO-TTFA-Ms": dice.choice(("-1", "nan", "x", "1e99"))}),
        lambda: dice.randbytes(dice.randrange(1, 400)) + b"\r\n\r\n",
        lambda: _request(host, {})[: dice.randrange(1, 100)],
    )
    return dice.choice(kinds)()


def _request(
    host: str, changes: dict[str, str | None], *, method: str = "GET", path: str = PATH
) -> bytes:
    headers: dict[str, str | None] = {
        "Host": host,
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
        **changes,
    }
    lines = [
        f"{method} {path} HTTP/1.1",
        *(f"{k}: {v}" for k, v in headers.items() if v is not None),
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
