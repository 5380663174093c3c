"""The playground in a real browser: `make browser`. Not collected by `make test`."""

import json
import os
import wave
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.api.server_process import ServerProcess
from tests.browser.chromium import Page, chromium

TEXT = "The first sound should come before you notice that you waited."
KEY = "opens the playground"


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots go: VOXSERVE_PICTURES, if one wants to keep them."""
    folder = Path(os.environ.get("VOXSERVE_PICTURES") or tmp_path_factory.mktemp("pictures"))
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    settings = {"api": {"api_keys": [KEY]}}
    with ServerProcess(tmp_path_factory.mktemp("guarded"), settings, key=KEY) as running:
        running.wait_ready()
        yield running


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with chromium(tmp_path_factory.mktemp("browser")) as running:
        yield running


def _open(page: Page, server: ServerProcess, **size: int) -> None:
    page.problems.clear()
    page.go(f"{server.url}/playground", **size)
    page.until("document.querySelectorAll('#voice option').length > 0")
    # Enough for a server that shares its machine with a browser and with other tests.
    page.value("document.getElementById('cushion').value = 1000")


def _type(page: Page, text: str) -> None:
    page.value(f"document.getElementById('text').value = {json.dumps(text)}")


def _meter(page: Page) -> dict[str, str]:
    return dict(page.value("({...document.getElementById('meter').dataset})"))


def _wait(page: Page, state: str) -> dict[str, str]:
    page.until(
        f"document.getElementById('meter').dataset.state === {state!r}"
        " || document.getElementById('message').textContent"
    )
    assert page.value("document.getElementById('message').textContent") == ""
    return _meter(page)


def test_speaks_to_the_end(page: Page, server: ServerProcess, pictures: Path) -> None:
    _open(page, server)
    page.picture(pictures / "desktop-idle.png")
    _type(page, TEXT)
    page.click("speak")
    _wait(page, "playing")
    page.until("Number(document.getElementById('meter').dataset.played) > 48000")
    page.picture(pictures / "desktop-playing.png")
    meter = _wait(page, "ended")
    outcome = server.client.get(f"/v1/audio/speech/{meter['request']}").json()
    samples = round(outcome["audio_ms"] * 24)
    assert int(meter["played"]) == int(meter["received"]) == samples > 0
    assert meter["underruns"] == "0"
    assert int(page.value("document.getElementById('ttfa').textContent")) > 0
    assert page.value("document.getElementById('save').href").startswith("blob:")
    assert page.problems == []


def test_live_text(page: Page, server: ServerProcess, pictures: Path) -> None:
    _open(page, server)
    _type(page, TEXT)
    page.value("document.querySelector('[value=live]').click()")
    page.value("document.getElementById('pace').value = 30")
    page.click("speak")
    meter = _wait(page, "ended")
    assert page.value("document.querySelector('#live b').textContent") == TEXT
    assert int(meter["played"]) == int(meter["received"]) > 0
    page.picture(pictures / "desktop-live.png")
    server.wait_idle()
    assert page.problems == []


@pytest.mark.parametrize("mode", ["whole", "live"])
def test_barge_in(page: Page, server: ServerProcess, mode: str) -> None:
    _open(page, server)
    _type(page, f"{TEXT} " * 12)
    page.value(f"document.querySelector('[value={mode}]').click()")
    page.click("speak")
    _wait(page, "playing")
    page.until("Number(document.getElementById('meter').dataset.played) > 2400")
    page.click("stop")
    meter = _wait(page, "stopped")
    assert int(meter["played"]) < int(meter["received"]) or mode == "live"
    assert page.value("document.getElementById('stop').disabled") is True
    server.wait_idle(5)
    assert _meter(page)["played"] == meter["played"]
    # The next one starts afresh.
    _type(page, "Again.")
    page.value("document.querySelector('[value=whole]').click()")
    page.click("speak")
    assert _wait(page, "ended")["underruns"] == "0"
    assert page.problems == []


@pytest.mark.parametrize("form", ["wav", "mp3", "opus", "flac"])
def test_other_formats(page: Page, server: ServerProcess, form: str) -> None:
    _open(page, server)
    _type(page, "Some words.")
    page.value(f"document.getElementById('format').value = {form!r}")
    page.click("speak")
    meter = _wait(page, "ended")
    assert int(meter["played"]) == int(meter["received"]) > 2400
    assert page.value("document.getElementById('save').download") == f"speech.{form}"
    assert page.problems == []


def test_upload(page: Page, server: ServerProcess, tmp_path: Path) -> None:
    """A recording becomes a voice that is chosen at once."""
    recording = tmp_path / "me.wav"
    noise = (np.random.default_rng(1).normal(0, 3000, 48_000)).astype("<i2")
    with wave.open(str(recording), "wb") as file:
        file.setparams((1, 2, 24_000, 0, "NONE", ""))
        file.writeframes(noise.tobytes())
    _open(page, server)
    page.value("document.getElementById('upload').open = true")
    page.value("document.getElementById('new-name').value = 'of-the-test'")
    page.attach("new-audio", recording)
    page.value("document.getElementById('upload-form').requestSubmit()")
    page.until("document.getElementById('upload-message').textContent")
    assert page.value("document.getElementById('upload-message').textContent") == (
        "The voice is ready."
    )
    assert page.value("document.getElementById('voice').value") == "of-the-test"
    page.click("speak")
    assert int(_wait(page, "ended")["played"]) > 0
    assert page.problems == []


def test_key(page: Page, guarded: ServerProcess) -> None:
    page.problems.clear()
    page.go(f"{guarded.url}/playground")
    page.until("document.getElementById('state').textContent.includes('API key')")
    page.value(
        f"document.getElementById('key').value = {KEY!r};"
        "document.getElementById('key').dispatchEvent(new Event('change'))"
    )
    page.until("document.querySelectorAll('#voice option').length > 0")
    for mode in ("whole", "live"):
        _type(page, "A word or two.")
        page.value(f"document.querySelector('[value={mode}]').click()")
        page.click("speak")
        assert int(_wait(page, "ended")["played"]) > 0
    lines = json.dumps(guarded.lines)
    assert KEY not in lines and "A word or two" not in lines


def test_phone(page: Page, server: ServerProcess, pictures: Path) -> None:
    _open(page, server, width=390, height=844)
    assert page.value("document.documentElement.scrollWidth") <= 390
    page.picture(pictures / "phone.png")


def test_dark(page: Page, server: ServerProcess, pictures: Path) -> None:
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    page.call("Emulation.setEmulatedMedia", features=dark)
    _open(page, server)
    page.click("speak")
    _wait(page, "ended")
    page.picture(pictures / "dark.png")
    page.call("Emulation.setEmulatedMedia", features=[])
