"""A headless Chromium, spoken to over pipes: no package, no port.

Over ``--remote-debugging-pipe`` the browser reads from descriptor 3 and writes to 4: one JSON
object after the other, each ended by a NUL.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from select import select
from typing import Any

from tests.support.processes import wait_until

NAMES = ("chromium", "chromium-browser", "google-chrome")
LIMIT = 60.0
"""Seconds the browser has for anything; it starts slowly on a crowded machine."""

_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # in a container there is no other way, and the page is our own
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)

# Keys the browser itself listens to need their number, too.
_CODES = {"Escape": 27}


def executable() -> str | None:
    """The browser of this machine, if it has one."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """One page of the browser."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to = to_browser
        self._from = from_browser
        self._unread = b""
        self._calls = 0
        self._session = ""
        #: What the console said, exceptions and blocked requests included.
        self.complaints: list[str] = []
        #: Every address that was asked for.
        self.requested: list[str] = []

    def attach(self) -> None:
        """Open a page and listen to it."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._session = session
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def open(self, path: Path, *, width: int = 1440, height: int = 900) -> None:
        """Show a file, and wait until it has drawn itself."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.call("Page.navigate", url=path.as_uri())
        self.until("document.documentElement?.dataset.ready === 'true'")

    def prefer(self, scheme: str) -> None:
        """Let the system be light or dark."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def value(self, expression: str) -> Any:
        """What an expression is worth in the page; a promise is awaited."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait for something to be true in the page."""
        wait_until(lambda: self.value(f"Boolean({condition})"), LIMIT)

    def click(self, selector: str) -> None:
        """Click in the middle of the first element that fits."""
        place = self.value(
            f"(() => {{ const b = document.querySelector({json.dumps(selector)})"
            ".getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=place[0],
                y=place[1],
                button="left",
                clickCount=1,
            )

    def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        for key in keys:
            text = {"text": key} if len(key) == 1 else {}
            code = _CODES.get(key, 0)
            for kind in ("keyDown", "keyUp"):
                self.call(
                    "Input.dispatchKeyEvent",
                    type=kind,
                    key=key,
                    windowsVirtualKeyCode=code,
                    **text,
                )
                text = {}

    def shoot(self, path: Path) -> None:
        """Write a picture of the page."""
        self.value("new Promise(f => requestAnimationFrame(() => requestAnimationFrame(f)))")
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def call(self, method: str, **params: Any) -> Any:
        """Ask the browser, and wait for its answer."""
        self._calls += 1
        call = {"id": self._calls, "method": method, "params": params}
        if self._session:
            call["sessionId"] = self._session
        os.write(self._to, json.dumps(call).encode() + b"\0")
        while True:
            told = self._read()
            if told.get("id") == self._calls:
                assert "error" not in told, told["error"]
                return told["result"]
            self._note(told)

    def _read(self) -> Any:
        while b"\0" not in self._unread:
            ready, _, _ = select([self._from], [], [], LIMIT)
            assert ready, "the browser does not answer"
            data = os.read(self._from, 1 << 20)
            assert data, "the browser is gone"
            self._unread += data
        message, _, self._unread = self._unread.partition(b"\0")
        return json.loads(message)

    def _note(self, told: Any) -> None:
        method, params = told.get("method"), told.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(str(params["args"]))
        elif method == "Log.entryAdded":
            self.complaints.append(str(params["entry"]))
        elif method == "Network.requestWillBeSent":
            self.requested.append(params["request"]["url"])


@contextmanager
def browser(directory: Path) -> Generator[Page]:
    """A browser with a page of its own; ``directory`` is where it keeps its things."""
    program = executable()
    assert program is not None
    read_by_it, to_browser = os.pipe()
    from_browser, written_by_it = os.pipe()
    # Out of the way of 3 and 4 first, since either pipe may be there already.
    ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (read_by_it, written_by_it)]

    def put_in_place() -> None:
        for end, place in zip(ends, (3, 4), strict=True):
            os.dup2(end, place)

    process = subprocess.Popen(
        [program, *_FLAGS, f"--user-data-dir={directory / 'profile'}"],
        preexec_fn=put_in_place,
        pass_fds=(3, 4),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(directory)},
        start_new_session=True,
    )
    for end in (read_by_it, written_by_it, *ends):
        os.close(end)
    page = Page(to_browser, from_browser)
    try:
        page.attach()
        yield page
        page._session = ""
        page.call("Browser.close")
        process.wait(LIMIT)
    finally:
        os.close(to_browser)
        os.close(from_browser)
        if process.poll() is None:
            os.killpg(process.pid, 9)
            process.wait(LIMIT)
