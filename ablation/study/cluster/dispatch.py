"""Handing units to workers: what they start from, what comes back, and another try where a worker is lost."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from ablation.errors import AblationError, ExitCode, WorkerLost
from ablation.study.cluster.join import Cluster
from ablation.study.cluster.messages import BATCHES, Began, Content, Delivery, Holds, Order, Refused, Told, Unit
from ablation.study.cluster.turns import Ended, Turns
from ablation.study.sampler import Reporter

TRIES = 4
"""How often in a row a unit loses its worker with nothing delivered in between before it is given up."""

Inputs = tuple[Unit, Order, dict[str, Path]]


class Dispatch:
    """Sends units to a cluster and has `deliver` and `holds` called with what comes back, in the thread that has the turn."""

    def __init__(
        self,
        cluster: Cluster,
        turns: Turns,
        reporter: Reporter,
        deliver: Callable[[Unit, str, Delivery], None],
        holds: Callable[[Unit, str, dict[str, Any]], None],
        lost: Callable[[Unit, str, str], None],
    ) -> None:
        self.cluster, self.turns, self.reporter = cluster, turns, reporter
        self._deliver, self._holds, self._lost = deliver, holds, lost
        self._active: set[Any] = set()
        self._lock = threading.Lock()
        self._task: Any = None
        """Made once: the head is told of each new one."""
        self._sent: dict[tuple[str, int, int], Any] = {}

    @property
    def free(self) -> int:
        """Units that the cluster could begin now, at least one."""
        return max(1, self.cluster.places - len(self._active))

    def done(self, unit_left: Callable[[], Inputs | None]) -> tuple[int, float]:
        """Have a unit done; (tokens, seconds of sampling) that its worker told of.

        `unit_left` says what is left of it and what that starts from, by what is on disk, and None if nothing is left.
        Raises `WorkerLost` after `TRIES` losses in a row without anything delivered, and what the worker refused.
        """
        from ray.exceptions import RayError, RayTaskError

        tokens, seconds, losses = 0, 0.0, 0
        while (inputs := unit_left()) is not None:
            unit, order, files = inputs
            worker, delivered, reporter = "a worker that had not begun", 0, copy.copy(self.reporter)
            try:
                with closing(self._items(unit, order, files)) as items:
                    for item in items:
                        if isinstance(item, Began):
                            worker = item.worker
                        elif isinstance(item, Holds):
                            self._holds(unit, worker, item.engine)
                        elif isinstance(item, Delivery):
                            self._deliver(unit, worker, item)
                            delivered += bool(item.files)
                        elif isinstance(item, Told):
                            getattr(reporter, item.method)(*item.arguments)
                            if item.method == "stage_done" and unit.kind == BATCHES:
                                seconds, tokens = seconds + item.arguments[0], tokens + item.arguments[1]
                        elif isinstance(item, Refused):
                            raise _refused(item, worker)
            except RayTaskError as bug:
                raise bug.as_instanceof_cause() from None
            except RayError as error:
                if self.turns.ended:
                    raise Ended from None
                losses = 1 if delivered else losses + 1
                why = type(error).__name__
                self._lost(unit, worker, why)
                self.reporter.say(f"{unit.name}: lost {worker} ({why}); what it delivered is kept")
                if losses == TRIES:
                    raise WorkerLost(
                        f"{unit.name}: {TRIES} workers in a row were lost before they delivered anything; the last one: {why}",
                        hint="Too little memory is a common cause. The same command goes on from all that was delivered.",
                    ) from None
                continue
            return tokens, seconds
        return tokens, seconds

    def cancel(self) -> None:
        """End the workers of all units."""
        import ray

        with self._lock:
            active = list(self._active)
        for generator in active:
            ray.cancel(generator, force=True)

    def _items(self, unit: Unit, order: Order, files: dict[str, Path]) -> Iterator[Any]:
        """What the worker yields. Others have the turn while this waits."""
        import ray

        from ablation.study.cluster.worker import work

        if self._task is None:
            needs = self.cluster.needs
            place = {"num_cpus": needs.cpus, "num_gpus": needs.gpus, "scheduling_strategy": "SPREAD"}
            once = {"max_calls": 1} if needs.gpus else {}  # the process ends with its unit, and its GPUs are free
            self._task = ray.remote(max_retries=0, **place, **once)(work)  # retries: see the package's docstring
        task = self._task.options(name=unit.name)
        refs = {name: self._put(path) for name, path in files.items()}
        generator, ended = task.remote(order, refs), False
        with self._lock:
            self._active.add(generator)
        try:
            if self.turns.ended:  # in between, so that `cancel` did not see it
                ray.cancel(generator, force=True)
            while True:
                with self.turns.aside():
                    try:
                        item = ray.get(next(generator))
                    except StopIteration:
                        ended = True
                        return
                yield item
        finally:
            if not ended:  # nobody wants to know what else it does
                ray.cancel(generator, force=True)
            with self._lock:
                self._active.discard(generator)

    def _put(self, path: Path) -> Any:
        """A reference to the content of a file. What many units start from, a sweep, is put once."""
        import ray

        state = path.stat()
        key = (str(path), state.st_mtime_ns, state.st_size)
        if key not in self._sent:
            ref = ray.put(Content.of(path.read_bytes()))
            if "/sweep/" not in path.as_posix():
                return ref
            self._sent[key] = ref
        return self._sent[key]


def files_below(root: Path, *folders: Path, without: Iterable[str] = ()) -> dict[str, Path]:
    """Path below `root` -> file, for all files in `folders` but those below a folder of a name in `without`."""
    left_out, found = set(without), {}
    for folder in folders:
        for path in sorted(folder.rglob("*")) if folder.is_dir() else [folder] if folder.is_file() else []:
            inside = path.relative_to(folder).parts
            if path.is_file() and not left_out & set(inside) and not any(part.startswith(".") for part in inside):
                found[path.relative_to(root).as_posix()] = path
    return found


def _refused(item: Refused, worker: str) -> AblationError:
    where = "" if worker.partition(":")[0] in item.message else f" (worker {worker})"
    error = AblationError(f"{item.message}{where}", hint=item.hint)
    error.exit_code = ExitCode(item.exit_code)
    return error
