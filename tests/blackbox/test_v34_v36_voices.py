"""V34–V36: reference clips that are none, URLs that lead where they must not, names of voices."""

import base64
import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest

from tests.api.server_process import ServerProcess, forced, has_no_traceback
from tests.api.test_voice_store import BAD_NAMES, tree
from tests.audio.recordings import noise, sounding, tone

REFUSED: dict[str, tuple[Callable[[], bytes], str, str]] = {
    "0.2 s": (lambda: noise(0.2), "ref_audio_invalid", "0.20 s"),
    "45 s": (lambda: noise(45), "ref_audio_too_long", "45.00 s"),
    "silence": (lambda: sounding(tone(2, 24_000) * 0, 24_000), "ref_audio_invalid", "silent"),
    "text": (lambda: b"These are words.\n" * 99, "ref_audio_invalid", "not wav"),
    "truncated": (lambda: noise(2)[:40_000], "ref_audio_invalid", "cut short"),
    "11 MiB": (lambda: bytes(11 * 2**20), "ref_audio_too_large", "at most 10485760"),
}


def data_uri(recording: bytes) -> str:
    return "data:audio/wav;base64," + base64.b64encode(recording).decode()


def error_of(server: ServerProcess, **fields: Any) -> dict[str, Any]:
    response = server.speech(**forced(13), **fields)
    assert response.status_code == 400, response.text
    assert has_no_traceback(response.text)
    error: dict[str, Any] = response.json()["error"]
    return error


@pytest.mark.parametrize("name", REFUSED)
def test_v34_bad_clips(server: ServerProcess, name: str) -> None:
    make, code, said = REFUSED[name]
    error = error_of(server, ref_audio=data_uri(make()), ref_text="Words.")
    assert (error["code"], error["param"]) == (code, "ref_audio")
    assert said in error["message"]


def test_v34_surround_at_96_khz_is_mixed_down(server: ServerProcess) -> None:
    recording = sounding(tone(2, 96_000, 6), 96_000)
    assert server.speech(**forced(13), ref_audio=data_uri(recording)).status_code == 200


def test_v34_is_well_after(server: ServerProcess) -> None:
    assert server.speech(**forced(13)).status_code == 200
    assert server.speech(**forced(13), ref_audio=data_uri(noise(2))).status_code == 200


class Listener:
    """A port on this machine, and how many connections it saw."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("", 0), family=socket.AF_INET)
        self.port: int = self.socket.getsockname()[1]
        self.seen = 0
        threading.Thread(target=self._count, daemon=True).start()

    def _count(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.seen += 1
            connection.close()


@pytest.fixture(scope="module")
def listener() -> Iterator[Listener]:
    running = Listener()
    with socket.create_connection(("127.0.0.1", running.port)):
        pass
    yield running
    # `shutdown` is what wakes the thread; `close` alone leaves it in `accept`.
    running.socket.shutdown(socket.SHUT_RDWR)
    running.socket.close()


HOSTS = (
    *("127.0.0.1", "127.1", "127.0.1", "127.255.255.254", "0.0.0.0", "0", "2130706433"),
    *("0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "017700000001", "127.000.000.001", "localhost"),
    *("LOCALHOST", "localhost.", "localhost.localdomain", "ip6-localhost", "[::1]", "[::]"),
    *("[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]"),
    *("[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[fe80::1%25lo]", "①②⑦.⓪.⓪.①", "１２７.0.0.1"),
    *("127。0。0。1", "loc\u00adalhost", "%6c%6f%63%61%6c%68%6f%73%74", "user@127.0.0.1"),
    *("example.com@127.0.0.1", "127.0.0.1#@example.com", "example.com\\@127.0.0.1"),
    *("169.254.169.254", "metadata.google.internal", "10.0.0.1", "172.16.0.1", "192.168.0.1"),
)
SCHEMES = ("https", "http")
OTHERS = (
    *(
        "file:///etc/hostname",
        "file:/etc/hostname",
        "FILE:///etc/hostname",
        "file://localhost/etc/x",
    ),
    *(
        "file:///proc/self/environ",
        "/etc/hostname",
        "../../etc/hostname",
        "~/.ssh/id_rsa",
        "./a.wav",
    ),
    *("C:\\Windows\\win.ini", "\\\\127.0.0.1\\share\\a.wav", "ftp://127.0.0.1:{port}/a.wav"),
    *("gopher://127.0.0.1:{port}/x", "dict://127.0.0.1:{port}/x", "ws://127.0.0.1:{port}/"),
    *("tcp://127.0.0.1:{port}", "rtsp://127.0.0.1:{port}/a", "s3://bucket/a.wav", "hls+http://x/a"),
    *(
        "concat:http://127.0.0.1:{port}/",
        "crypto:http://127.0.0.1:{port}/",
        "pipe:0",
        "jar:file:/x!/",
    ),
    *("//127.0.0.1:{port}/a.wav", " http://127.0.0.1:{port}/", "\thttp://127.0.0.1:{port}/"),
    *("http:\\\\127.0.0.1:{port}\\", "http:/127.0.0.1:{port}/", "http:127.0.0.1:{port}"),
    *("data:,http://127.0.0.1:{port}/", "127.0.0.1:{port}/a.wav", "javascript:alert(1)"),
)
URLS = (
    *(f"{scheme}://{host}:{{port}}/a.wav" for scheme in SCHEMES for host in HOSTS),
    *OTHERS,
)


def test_v35_urls_lead_nowhere(server: ServerProcess, listener: Listener) -> None:
    assert len(set(URLS)) >= 60
    for url in URLS:
        url = url.replace("{port}", str(listener.port))
        error = error_of(server, ref_audio=url)
        allowed = {"url_not_allowed"} | ({"ref_audio_invalid"} if url[:5] == "data:" else set())
        assert error["code"] in allowed, url
    assert listener.seen == 1  # The fixture's own, which shows that it counts.


@pytest.mark.parametrize(
    "fields",
    [
        {"references": [{"audio_path": "http://127.0.0.1:{port}/a.wav", "text": "x"}]},
        {"references": [{"ref_audio": "file:///etc/hostname"}]},
    ],
)
def test_v35_the_alias_is_no_way_round(
    server: ServerProcess, listener: Listener, fields: dict[str, Any]
) -> None:
    assert error_of(server, **fields)["code"] == "url_not_allowed"
    assert listener.seen == 1


def test_v36_names_stay_out_of_the_file_system(server: ServerProcess) -> None:
    before = tree(server.folder)
    recording = noise(1.5)
    for name in BAD_NAMES:
        # Escaped, because half a surrogate pair cannot be encoded otherwise.
        body = json.dumps({"name": name, "audio": data_uri(recording)})
        response = server.client.post("/v1/audio/voices", content=body)
        assert response.status_code == 400, name
        assert has_no_traceback(response.text)
    form = server.client.post(
        "/v1/audio/voices",
        data={"name": "../x"},
        files={"audio": ("../../../x.wav", recording, "audio/wav")},
    )
    assert form.status_code == 400
    assert tree(server.folder) == before


def test_v36_deletion_reaches_no_file(server: ServerProcess) -> None:
    before = tree(server.folder)
    for name in BAD_NAMES:
        # A client resolves "." and ".." by itself; an empty name is another route.
        if name in ("", ".", "..") or "\ud800" in name:
            continue
        path = quote(name, safe="").replace(".", "%2e")
        response = server.client.delete(f"/v1/audio/voices/{path}")
        # The router takes no line end for a part of the name.
        expected = (400, 404) if "\n" in name else (400,)
        assert response.status_code in expected, (name, response.text)
    assert server.client.delete("/v1/audio/voices/%2e%2e%2fx").status_code == 400
    assert tree(server.folder) == before
