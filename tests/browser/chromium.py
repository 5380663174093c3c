"""A headless Chromium, spoken to by its DevTools protocol."""

import base64
import contextlib
import itertools
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from websockets.sync.client import ClientConnection, connect

from tests.api.server_process import poll

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--autoplay-policy=no-user-gesture-required", "--remote-debugging-port=0", "--mute-audio"),
)
START_S = 60.0


class Page:
    """One tab. problems: what its console and its network complained about."""

    def __init__(self, connection: ClientConnection) -> None:
        self.problems: list[str] = []
        self._connection = connection
        self._numbers = itertools.count(1)
        for domain in ("Page", "Runtime", "Log", "DOM"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        self._connection.send(json.dumps({"id": number, "method": method, "params": params}))
        while (message := json.loads(self._connection.recv(30))).get("id") != number:
            self._note(message)
        assert "error" not in message, message
        return dict(message["result"])

    def go(self, url: str, width: int = 1280, height: int = 900) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.call("Page.navigate", url=url)
        self.until(f"location.href === {url!r} && document.readyState === 'complete'")

    def value(self, script: str) -> Any:
        """What a JavaScript expression is."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, script: str, timeout_s: float = 60.0) -> Any:
        return poll(script, lambda: self.value(script), timeout_s)

    def click(self, element: str) -> None:
        """As a person does, so that the page may play."""
        self.value(f"document.getElementById({element!r}).scrollIntoView({{block: 'center'}})")
        box = self.value(
            f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])"
            f"(document.getElementById({element!r}).getBoundingClientRect())"
        )
        for kind in ("mousePressed", "mouseReleased"):
            place = {"x": box[0], "y": box[1], "button": "left", "clickCount": 1}
            self.call("Input.dispatchMouseEvent", type=kind, **place)

    def attach(self, element: str, file: Path) -> None:
        """Choose a file in an input for files."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=f"#{element}")["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(file)])

    def picture(self, file: Path) -> None:
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(shot["data"]))

    def _note(self, message: dict[str, Any]) -> None:
        if message.get("method") == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(message["params"]["exceptionDetails"])[:500])
        elif message.get("method") == "Log.entryAdded":
            entry = message["params"]["entry"]
            if entry["level"] in ("error", "warning"):
                self.problems.append(f"{entry['text']} {entry.get('url', '')}")


@contextlib.contextmanager
def chromium(folder: Path) -> Iterator[Page]:
    """A fresh browser with one empty tab."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    assert program, "chromium is not installed: `make browser` installs it"
    profile = folder / "profile"
    with (folder / "chromium.log").open("wb") as log:
        process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"], stdout=log, stderr=log
        )
    try:
        port_file = profile / "DevToolsActivePort"
        poll("chromium is up", lambda: port_file.exists() and port_file.read_text(), START_S)
        port = port_file.read_text().split()[0]
        tabs = httpx.get(f"http://127.0.0.1:{port}/json", trust_env=False).json()
        url = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
        with connect(url, max_size=None, compression=None, proxy=None) as connection:
            yield Page(connection)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
