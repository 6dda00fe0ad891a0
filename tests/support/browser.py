"""Chromium without a window, driven by its DevTools protocol through a pipe: how a page looks, and what it does."""

import base64
import json
import os
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Quiet, and nothing of it asks the network for anything.
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars"),
    *("--disable-crash-reporter", "--disable-breakpad"),
)
SILENCE_S = 60


class Page:
    """A tab. `errors` are what its console shows."""

    def __init__(self, to: int, of: int) -> None:
        self._to, self._of, self._rest, self._count = to, of, b"", 0
        self._session: dict[str, str] = {}
        self.errors: list[str] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)  # its only field: sessionId
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **params: Any) -> Any:
        """Return the browser's answer."""
        self._count += 1
        order = {"id": self._count, "method": method, "params": params, **self._session}
        os.write(self._to, json.dumps(order).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                return answer["result"]

    def open(self, path: Path, scheme: str, width: int = 1280) -> None:
        """Show a file, "light" or "dark"."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.ask("Page.navigate", url=path.as_uri())
        while self._next().get("method") != "Page.loadEventFired":
            pass

    def run(self, script: str) -> Any:
        """Return the value of an expression in the page."""
        done = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def shoot(self, path: Path) -> None:
        """Write a picture of the whole page."""
        self.run("scrollTo(0, 0)")
        shot = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            assert select.select([self._of], [], [], SILENCE_S)[0], "chromium does not answer"
            more = os.read(self._of, 1 << 20)
            assert more, "chromium ended"
            self._rest += more
        text, _, self._rest = self._rest.partition(b"\0")
        event: dict[str, Any] = json.loads(text)
        if event.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"):
            self.errors.append(json.dumps(event["params"]))
        return event


@contextmanager
def browser(profile: Path) -> Iterator[Page]:
    """Start a browser whose files are in a directory of its own, and yield a tab."""
    to_child, to = os.pipe()
    of, of_child = os.pipe()
    # It reads from file descriptor 3 and writes to 4.
    options = (*OPTIONS, "--remote-debugging-pipe", f"--user-data-dir={profile}")
    argv = ["bash", "-c", f'exec "$@" 3<&{to_child} 4>&{of_child}', "-", "chromium", *options]
    process = subprocess.Popen(argv, pass_fds=(to_child, of_child), stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        os.close(to_child)
        os.close(of_child)
        yield Page(to, of)
    finally:
        os.close(to)  # it ends
        os.close(of)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
