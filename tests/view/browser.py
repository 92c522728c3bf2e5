"""A real server and a real browser: Debian's chromium, driven by Playwright."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

CHROMIUM = os.environ.get("ABLATION_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
"""Without a sandbox, as root in a container needs; the pages are this program's own."""


def needs_browser() -> pytest.MarkDecorator:
    """Skips where there is no chromium, and says so."""
    return pytest.mark.skipif(
        CHROMIUM is None, reason="there is no chromium (apt-get install chromium, or ABLATION_CHROMIUM=PATH)"
    )


@contextmanager
def server(place: Path, *options: str, cache: Path) -> Iterator[str]:
    """`ablation view` on a free port; the address that it prints."""
    command = [sys.executable, "-m", "ablation", "view", str(place), "--port", "0", *options]
    environment = os.environ | {"ABLATION_CACHE": str(cache), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"http://\S+", line)
            assert found, line + process.stderr.read()
            yield found[0]
        finally:
            process.terminate()
            process.wait(20)
            assert "Traceback" not in process.stderr.read()


class Watch:
    """What a page says and asks for while it is looked at."""

    def __init__(self, page) -> None:
        self.page, self.said, self.asked, self.bytes, self.statuses = page, [], [], 0, []
        page.on("console", lambda message: self.said.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("dialog", lambda dialog: (self.said.append(f"a dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("response", self._answered)

    def _answered(self, answer) -> None:
        self.statuses.append(answer.status)
        try:
            self.bytes += len(answer.body())
        except Exception:
            return  # of a redirect: it has none

    def clear(self) -> None:
        self.said, self.asked, self.bytes, self.statuses = [], [], 0, []


def settle(page) -> None:
    """Wait until the page is whole and has stopped loading itself again."""
    whole = "document.readyState === 'complete' && Boolean(document.querySelector('h1, pre')) && !document.querySelector('[data-reload]')"
    for _ in range(360):
        try:
            page.wait_for_load_state()
            if page.evaluate(whole):
                return
        except Exception as error:
            if "navigation" not in str(error) and "destroyed" not in str(error):
                raise
        page.wait_for_timeout(500)
    raise AssertionError(f"{page.url} waits for ever")
