"""A page in headless Chromium, driven through its debugging pipe: clicks, keys, values, screenshots."""

import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import time

import pytest

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))),
    None,
)
AS_FILES_3_AND_4 = """
import fcntl, os, sys
read, write = (fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3])
os.dup2(read, 3)
os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""  # where Chromium reads and writes
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")


class Page:
    """One tab. Errors of scripts and every request for something else than the page itself are kept."""

    def __init__(self, width: int = 1300, height: int = 900):
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._count, self._rest, self._loaded = 0, b"", False
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        hear, them_write = os.pipe()
        them_read, say = os.pipe()
        self._hear, self._say = hear, say
        self._browser = subprocess.Popen(
            [
                sys.executable,
                "-c",
                AS_FILES_3_AND_4,
                str(them_read),
                str(them_write),
                str(CHROMIUM),
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--remote-debugging-pipe",
                f"--user-data-dir={self._folder.name}",
                "about:blank",
            ],
            pass_fds=(them_read, them_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(them_read)
        os.close(them_write)
        self._session = None
        targets = self.send("Target.getTargets")["targetInfos"]
        tab = next(t["targetId"] for t in targets if t["type"] == "page")
        attached = self.send("Target.attachToTarget", targetId=tab, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")
        self.resize(width, height)

    def __enter__(self) -> "Page":
        return self

    def __exit__(self, *error: object) -> None:
        self._browser.kill()
        self._browser.wait()
        os.close(self._hear)
        os.close(self._say)
        self._folder.cleanup()

    def send(self, method: str, **params) -> dict:
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._say, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                return answer["result"]

    def _next(self) -> dict:
        while b"\0" not in self._rest:
            assert select.select([self._hear], [], [], 60)[0], "Chromium says nothing"
            got = os.read(self._hear, 2**20)
            assert got, "Chromium has ended"
            self._rest += got
        one, _, self._rest = self._rest.partition(b"\0")
        answer = json.loads(one)
        self._note(answer.get("method"), answer.get("params", {}))
        return answer

    def _note(self, method: str | None, params: dict) -> None:
        if method == "Runtime.exceptionThrown":
            self.errors.append(str(params["exceptionDetails"]))
        if method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        if method == "Page.loadEventFired":
            self._loaded = True

    def resize(self, width: int, height: int = 900) -> None:
        how = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.send("Emulation.setDeviceMetricsOverride", **how)

    def open(self, path: pathlib.Path) -> None:
        self._loaded = False
        self.send("Page.navigate", url=path.resolve().as_uri())
        while not self._loaded:
            self._next()

    def value(self, script: str):
        """The value of an expression of JavaScript."""
        found = self.send(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def text(self, selector: str) -> str:
        return self.value(f"document.querySelector({json.dumps(selector)}).innerText")

    def click(self, selector: str) -> None:
        """A press of the mouse in the middle of an element, which must be what is seen there."""
        place = self.value(
            f"""(() => {{
            const e = document.querySelector({json.dumps(selector)});
            e.scrollIntoView({{block: "center"}});
            const b = e.getBoundingClientRect(), x = b.x + b.width / 2, y = b.y + b.height / 2;
            return [x, y, e.contains(document.elementFromPoint(x, y))]; }})()"""
        )
        assert place[2], f"{selector} is covered or outside the window"
        self.press(*place[:2])

    def press(self, x: float, y: float) -> None:
        at = {"x": x, "y": y, "button": "left", "clickCount": 1}
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, **at)

    def move(self, x: float, y: float) -> None:
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def type(self, selector: str, text: str) -> None:
        self.click(selector)
        self.send("Input.insertText", text=text)

    def until(self, script: str, seconds: float = 20) -> None:
        end = time.monotonic() + seconds
        while not self.value(script):
            assert time.monotonic() < end, f"not within {seconds} s: {script}"
            time.sleep(0.02)

    def screenshot(self, path: pathlib.Path) -> None:
        shot = self.send("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(shot))
