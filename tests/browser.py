"""A headless Chromium for tests and pictures, driven by its DevTools protocol through a pipe: no driver, no package, no network.

CHROMIUM names the browser, as for scripts/draw-diagrams; otherwise the first one on PATH is taken.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final

NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
_START_S: Final = 60.0
_ANSWER_S: Final = 30.0
_STARTER: Final = """
import fcntl, os, sys
moved = [fcntl.fcntl(int(each), fcntl.F_DUPFD, 10) for each in sys.argv[1:3]]
for number, each in enumerate(moved, 3):
    os.dup2(each, number)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""The browser reads its commands from the descriptor 3 and answers to 4."""
_FLAGS: Final = (
    "--headless=new",
    "--no-sandbox",
    "--remote-debugging-pipe",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-sync",
    "--hide-scrollbars",
    "--no-first-run",
    "--force-color-profile=srgb",
)
_CODES: Final = {"Enter": 13, "Tab": 9, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}


def find_browser() -> str | None:
    """The browser's program; None if there is none."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page in a browser of its own. `problems` are the exceptions of its scripts, and what its policy of content blocked."""

    def __init__(self, program: str, profile: Path) -> None:
        to_browser, from_browser = os.pipe(), os.pipe()
        starter = [sys.executable, "-S", "-c", _STARTER, str(to_browser[0]), str(from_browser[1])]
        command = [*starter, program, *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            command,
            pass_fds=(to_browser[0], from_browser[1]),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_browser[0])
        os.close(from_browser[1])
        self._send, self._receive = to_browser[1], from_browser[0]
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.problems: list[str] = []
        target = self._call("Target.createTarget", {"url": "about:blank"}, _START_S)["targetId"]
        self._session = self._call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable", {})
        self.size(1280, 860)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with suppress(OSError):
            os.close(self._send)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._receive)

    def open(self, url: str) -> None:
        """Load a page."""
        self._call("Page.navigate", {"url": url})
        self.until("document.readyState === 'complete'")

    def size(self, width: int, height: int, scale: float = 1) -> None:
        """Set the size of the window."""
        self._call("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False})

    def media(self, **features: str) -> None:
        """What the page's media queries see, as in prefers_color_scheme="dark"."""
        listed = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self._call("Emulation.setEmulatedMedia", {"features": listed})

    @contextmanager
    def beginning(self, script: str) -> Iterator[None]:
        """Run a script in each page that is loaded meanwhile, before the page's own."""
        added = self._call("Page.addScriptToEvaluateOnNewDocument", {"source": script})
        try:
            yield
        finally:
            self._call("Page.removeScriptToEvaluateOnNewDocument", added)

    def run(self, script: str) -> Any:
        """The value of an expression in the page, awaited. Raises AssertionError if it throws."""
        answer = self._call("Runtime.evaluate", {"expression": script, "awaitPromise": True, "returnByValue": True, "userGesture": True})
        assert "exceptionDetails" not in answer, f"{script}: {answer['exceptionDetails']}"
        return answer["result"].get("value")

    def until(self, script: str, seconds: float = 20.0) -> Any:
        """Wait until an expression is true, and return its value. Raises AssertionError, with the page's text, if it never is."""
        end = time.monotonic() + seconds
        while True:
            with suppress(AssertionError):
                value = self.run(f"Promise.resolve({script}).then((value) => (value instanceof Node ? true : value))")
                if value:
                    return value
            if time.monotonic() > end:
                raise AssertionError(f"{script} was never true; problems: {self.problems}; the page: {self.run('document.body.innerText')}")
            time.sleep(0.05)

    def press(self, key: str) -> None:
        """Press a key."""
        code = _CODES.get(key, ord(key[0].upper()))
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        event = {"key": key, "windowsVirtualKeyCode": code, **({"text": text} if text else {})}
        self._call("Input.dispatchKeyEvent", {"type": "keyDown" if text else "rawKeyDown", **event})
        self._call("Input.dispatchKeyEvent", {"type": "keyUp", **event})

    def click(self, selector: str) -> None:
        """Click in the middle of the first element of a selector, as a mouse does."""
        self.run(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center'}})")
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, selector)

    def mouse(self, kind: str, selector: str) -> None:
        """Press or release the mouse's button in the middle of an element that the window shows."""
        script = f"""(() => {{ const r = document.querySelector({json.dumps(selector)}).getBoundingClientRect();
            return [r.x + r.width / 2, r.y + r.height / 2] }})()"""
        x, y = self.run(script)
        self._call("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1})

    def picture(self, path: Path) -> None:
        """Save a picture of the window as PNG."""
        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot", {"format": "png"})["data"]))

    def _call(self, method: str, parameters: dict[str, Any], seconds: float = _ANSWER_S) -> Any:
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters, **({"sessionId": self._session} if self._session else {})}
        os.write(self._send, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + seconds
        while True:
            answer = self._next(end, method)
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self._hear(answer)

    def _hear(self, event: dict[str, Any]) -> None:
        parameters = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.problems.append(str(parameters["exceptionDetails"].get("exception", parameters["exceptionDetails"])))
        elif event.get("method") == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.problems.append(parameters["entry"]["text"])

    def _next(self, end: float, method: str) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._receive], [], [], max(0.0, end - time.monotonic()))
            chunk = os.read(self._receive, 1 << 20) if ready else b""
            assert chunk, f"the browser did not answer {method}"
            self._buffer += chunk
        text, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(text)
        return answer
