"""What takes longer than a page may: computed once by a thread, kept while what it rests on stays as it is."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from pathlib import Path
from typing import Any, NoReturn

from ablation.errors import IntegrityError

_KEPT = 64


class Jobs:
    """Results by key. One thread computes, so that pages stay quick."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="view")
        self._found: OrderedDict[Hashable, Future[Any]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, work: Callable[[], Any], wait: float = 0.3) -> Any:
        """The result of `work` under `key`; None while it is being computed. Raises what `work` raised, as an `AblationError`."""
        with self._lock:
            future = self._found.get(key)
            if future is None:
                future = self._found[key] = self._pool.submit(work)
                while len(self._found) > _KEPT:
                    self._found.popitem(last=False)[1].cancel()
        try:
            return future.result(wait)
        except NotYet:
            return None
        except Exception as error:
            with self._lock:  # the next page tries again
                self._found.pop(key, None)
            return _expected(error)

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
    for name in ("journal.jsonl", "deviations.jsonl", "plan.yaml", "plan.lock", "problems.jsonl"):
        try:
            status = (root / name).stat()
            marks.append((name, status.st_size, status.st_mtime_ns))
        except OSError:
            marks.append((name, 0, 0))
    patterns = ("*/*/*/*.json", "evaluations/*/*/*/*.json", "evaluations/*/*/*.json")
    found = sorted(path for pattern in patterns for path in root.glob(pattern))
    return (str(root), *marks, *((str(path), path.stat().st_mtime_ns) for path in found if path.is_file()))
