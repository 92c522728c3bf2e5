"""The viewer over 324,000 made-up rollouts: start, first page, filters, text, pairs, one rollout, and the weight of pages.

Times are of requests over the loopback interface to `ablation view` in a process of its own, the least of several tries: other work
on the machine only adds to them. The run is that of `bench_million`.
"""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

from .made_up_run import made_up_run
from .row import Row

ROOT = Path(__file__).parents[2]
EACH, TRIES = 20, 5
FIRST, FILTER, WEIGHT = 0.5, 0.3, 1_500_000
FILTERS = {
    "family, arm, effort, looping, by length": "family=main&arm=C&effort=xhigh&looping=yes&sort=tokens&dir=down",
    "truncated and wrong, by logprob": "truncated=yes&correct=no&sort=logprob&dir=up",
    "looping in C, not in N, longest first": "differs=looping&arm=C&without=N&stage=readout&sort=tokens",
    "text in thinking or answer": f"text={quote('naïve')}&sort=tokens&dir=down",
    "text in thinking or answer, one arm": "text=twelve+then+half&arm=N&family=main&sort=tokens&dir=down",
}


class Client:
    def __init__(self, port: int) -> None:
        self.port = port

    def get(self, path: str) -> tuple[float, bytes]:
        """(seconds, body) of one page."""
        began = time.perf_counter()
        asked = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        asked.request("GET", path)
        answer = asked.getresponse()
        body = answer.read()
        took = time.perf_counter() - began
        assert answer.status == 200, (path, answer.status, body[:2000])
        asked.close()
        return took, body

    def least(self, path: str) -> tuple[float, bytes]:
        return min((self.get(path) for _ in range(TRIES)), key=lambda one: one[0])


def _serve(run: Path) -> tuple[subprocess.Popen, Client, float]:
    """(process, client, seconds until it listens)."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "ablation", "view", str(run), "--port", "0"],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    found = re.search(r":(\d+)/", process.stdout.readline())
    assert found is not None
    return process, Client(int(found[1])), time.perf_counter() - began


def rows() -> list[Row]:
    run = made_up_run(Path(tempfile.gettempdir()), EACH)
    found, first, started = [], [], []
    heaviest = 0
    process, client, _ = _serve(run)  # fills the cache, if it is not there
    try:
        while b"data-reload" in client.get("/study/run/rollouts")[1]:
            time.sleep(1)
    finally:
        process.terminate()
        process.wait()
    for last in (False, False, True):
        process, client, seconds = _serve(run)
        try:
            started.append(seconds)
            first.append(client.get("/study/run")[0])
            if not last:
                continue
            began = time.perf_counter()
            while b"data-reload" in (page := client.get("/study/run/rollouts")[1]):
                time.sleep(0.05)
            ready = time.perf_counter() - began
            total = int(re.search(rb"<b>([\d,]+)</b>", page)[1].replace(b",", b""))
            for what, query in FILTERS.items():
                took, body = client.least(f"/study/run/rollouts?{query}")
                count = re.search(rb"<b>([\d,]+)</b>", body)[1].decode()
                found.append(Row(f"... {what} ({count} found)", f"{took:.3f} s", f"<= {FILTER} s", took <= FILTER))
                heaviest = max(heaviest, len(body))
            link = re.search(rb'href="(/study/run/rollout\?[^"]+)"', page)[1].decode().replace("&amp;", "&")
            took, body = client.least(link)
            found.append(Row("... one rollout", f"{took:.3f} s", f"<= {FIRST} s", took <= FIRST))
            static = sum(len(client.get(f"/static/{name}")[1]) for name in ("view.css", "view.js", "icon.svg"))
            heaviest = max(heaviest, len(body)) + static
        finally:
            process.terminate()
            process.wait()
    return [
        Row("ablation view: first page of a study, cold", f"{min(first):.3f} s", f"<= {FIRST} s", min(first) <= FIRST),
        Row("... from the command to that page", f"{min(a + b for a, b in zip(started, first, strict=True)):.2f} s", "-", True),
        Row(f"... {total:,} rollouts ready after it, from the cache", f"{ready:.1f} s", "-", True),
        *found,
        Row(
            "... heaviest page, with all that it loads",
            f"{heaviest / 1e3:,.0f} kB",
            f"<= {WEIGHT / 1e3:,.0f} kB",
            heaviest <= WEIGHT,
        ),
    ]
