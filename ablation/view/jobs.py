"""What takes longer than a page may: computed once by a thread, kept while what it rests on stays as it is."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ablation.errors import IntegrityError

_KEPT = 64


@dataclass
class _Job:
    """What is computed, or was, from one state of what it rests on."""

    state: Hashable
    future: Future[Any]
    owed: bool = False
    """Somebody was told to come again for it, and nobody has had it yet."""


class Jobs:
    """The newest result under each name. One thread computes, so that pages stay quick."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="view")
        self._found: OrderedDict[Hashable, _Job] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: Hashable, state: Hashable, work: Callable[[], Any], wait: float = 0.3) -> Any:
        """The result of `work` from `state`; None while it is being computed. Raises what `work` raised, as an `AblationError`.

        What rests on a run that changes faster than it can be computed would never be shown: whoever was told to come again
        gets what was begun for them, though the run has gone on since. Nobody gets what was begun before they first asked
        and was done by then.
        """
        with self._lock:
            job = self._found.get(name)
            if job is None or (job.state != state and job.future.done() and not job.owed):
                job = self._found[name] = _Job(state, self._pool.submit(work))
                self._found.move_to_end(name)
                while len(self._found) > _KEPT:
                    self._found.popitem(last=False)[1].future.cancel()
        try:
            found = job.future.result(wait)
        except NotYet:
            job.owed = True
            return None
        except CancelledError:
            return None  # more runs were asked for than are kept; the next page begins again
        except Exception as error:
            with self._lock:  # the next page tries again
                if self._found.get(name) is job:
                    del self._found[name]
            return _expected(error)
        job.owed = False
        return found

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def _expected(error: Exception) -> NoReturn:
    """Raise `error` as what a person can cause or meet, or as the bug that it is."""
    if isinstance(error, OSError | ValueError | KeyError | TypeError):
        raise IntegrityError(f"the run folder cannot be read ({type(error).__name__}: {error})") from error
    raise error


def state_of(root: Path) -> tuple[Any, ...]:
    """Changes whenever a run folder has something new to say: journal, deviations, and which stages and audits are there."""
    marks = []
    for name in ("journal.jsonl", "deviations.jsonl", "plan.yaml", "plan.lock", "problems.jsonl", "verdict.json"):
        try:
            status = (root / name).stat()
            marks.append((name, status.st_size, status.st_mtime_ns))
        except OSError:
            marks.append((name, 0, 0))
    for pattern in ("*/*/*/*.json", "evaluations/*/*/*/*.json", "evaluations/*/*/*.json"):
        with contextlib.suppress(OSError):  # a folder went while it was looked through: the next look sees that
            for path in sorted(root.glob(pattern)):
                with contextlib.suppress(OSError):
                    marks.append((str(path), path.stat().st_mtime_ns, 0))
    return (str(root), *marks)
