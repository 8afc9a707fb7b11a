"""A headless Chromium over the DevTools protocol, with nothing but the standard library.

Chromium reads commands from file descriptor 3 and writes replies and events to 4
(``--remote-debugging-pipe``), each a json document that ends in a zero byte.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

EXECUTABLE = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)


class Chromium:
    """One browser with one page.

    Attributes:
        problems: what the page complained of: uncaught exceptions, console errors and warnings,
            blocked or failed loads.
        requests: every URL that the page asked for.
    """

    def __init__(self, profile: Path, timeout_s: float = 60) -> None:
        assert EXECUTABLE is not None
        self.timeout_s = timeout_s
        self.problems: list[str] = []
        self.requests: list[str] = []
        self._next_id = 0
        self._pending = b""
        self._replies: dict[int, dict[str, Any]] = {}
        command_read, self._commands = os.pipe()
        self._events, event_write = os.pipe()
        # The shell puts the pipes where Chromium looks for them: 3 and 4 may be in use here.
        script = f'exec "$0" "$@" 3</dev/fd/{command_read} 4>/dev/fd/{event_write}'
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", script, EXECUTABLE, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(command_read, event_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(command_read)
        os.close(event_write)
        self._session: str | None = None
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        # The clipboard answers to the focused page only.
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session = None
        try:
            self.call("Browser.close")
            self._process.wait(timeout=10)
        except (OSError, EOFError, TimeoutError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        finally:
            os.close(self._commands)
            os.close(self._events)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send one command and return its result."""
        self._next_id += 1
        message: dict[str, Any] = {"id": self._next_id, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + self.timeout_s
        while self._next_id not in self._replies:
            self._read(deadline)
        reply = self._replies.pop(self._next_id)
        assert "error" not in reply, f"{method}: {reply['error']}"
        result: dict[str, Any] = reply["result"]
        return result

    def open(self, page: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Show a file and wait until its plots are drawn."""
        self.show(width=width, height=height, dark=dark)
        self.call("Page.navigate", url=page.resolve().as_uri())
        self.wait_for("document.documentElement?.dataset.ready === 'plots'")

    def show(self, *, width: int, height: int = 900, dark: bool = False) -> None:
        """Set the size of the window and the preferred colour scheme."""
        mobile = width < 500
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def evaluate(self, expression: str) -> Any:
        """The value of an expression of the page, awaited if it is a promise."""
        reply = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True
        )
        assert "exceptionDetails" not in reply, reply["exceptionDetails"]
        return reply["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Wait until an expression is true.

        Raises:
            TimeoutError: it did not become true in time.
        """
        deadline = time.monotonic() + self.timeout_s
        while not self.evaluate(condition):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{condition} did not become true; the page said {self.problems}")
            time.sleep(0.05)

    def press(self, key: str) -> None:
        """Press and release a key: ``Tab`` or ``Enter``."""
        code, text = {"Tab": (9, ""), "Enter": (13, "\r")}[key]
        common = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Write what is shown, or the whole page, as a PNG."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def _read(self, deadline: float) -> None:
        remaining = deadline - time.monotonic()
        if remaining <= 0 or not select.select([self._events], [], [], remaining)[0]:
            raise TimeoutError("Chromium does not answer")
        data = os.read(self._events, 1 << 16)
        if not data:
            raise EOFError("Chromium ended")
        *messages, self._pending = (self._pending + data).split(b"\0")
        for message in messages:
            self._take(json.loads(message))

    def _take(self, message: dict[str, Any]) -> None:
        if "id" in message:
            self._replies[message["id"]] = message
            return
        parameters = message.get("params", {})
        match message["method"]:
            case "Runtime.exceptionThrown":
                self.problems.append(str(parameters["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if parameters["type"] in {"error", "warning", "assert"}:
                self.problems.append(str(parameters["args"]))
            case "Log.entryAdded" if parameters["entry"]["level"] in {"error", "warning"}:
                self.problems.append(str(parameters["entry"]))
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])
