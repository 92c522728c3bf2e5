"""What runs in a worker: a unit of the driver's run, in a scratch folder, with the code of a serial run."""

from __future__ import annotations

import os
import platform
import queue
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ablation.errors import AblationError, IntegrityError, StopRuleFired, UsageError
from ablation.files import sha256_path
from ablation.plan.choose import lock_path
from ablation.plan.deviations import deviations_path
from ablation.plan.locate import locate, resources_of
from ablation.plan.lock import LockedPlan, verify_lock
from ablation.rollouts.folder import RunFolder
from ablation.rollouts.grades import grades_of
from ablation.rollouts.outcomes import Outcomes, outcomes
from ablation.rollouts.store import read_stage
from ablation.study.chosen import on_backend
from ablation.study.cluster.messages import UPDATES, Began, Content, Holds, Order, Refused
from ablation.study.cluster.relay import Relay, RelayReporter, Send
from ablation.study.cluster.versions import differing, versions
from ablation.study.models import Loaded
from ablation.study.runner import Study
from ablation.study.sampler import stage_items
from ablation.study.schedule import plan_cells

MODELS = "ABLATION_MODELS"
"""Environment variable of a worker: folders, with `:` between them, in which it has models under their folder's name."""
NEEDED = ("model.base", "model.start_adapter")
_LOOK = 0.2
"""Seconds between two looks for what has appeared in the scratch folder."""

_kept: dict[Any, Loaded] = {}
"""The model that this process holds between two units, by what it was loaded for."""
_reporter = RelayReporter(lambda _: None)
_proved: set[tuple[str, str]] = set()
"""(path, digest) of models that this process has looked through."""


def work(order: Order, refs: dict[str, Any]) -> Iterator[Any]:
    """A Ray task: do `order`, and yield what the driver has to know; the last object is a `Refused` if it could not be done.

    `refs`: path below the run folder -> reference of a `Content`. The study works in a thread, as this one yields.
    """
    import ray

    context = ray.get_runtime_context()
    yield Began(f"{platform.node()}:{os.getpid()} on node {context.get_node_id()[:8]}")
    outbox: queue.Queue[Any] = queue.Queue()
    contents = dict(zip(refs, ray.get(list(refs.values())), strict=True))
    with tempfile.TemporaryDirectory(prefix="ablation-worker-", ignore_cleanup_errors=True) as scratch:
        done = _Work(order, contents, Path(scratch), outbox.put)
        thread = threading.Thread(target=done.run, name="unit", daemon=True)
        thread.start()
        while (item := _next(outbox, done)) is not None:
            yield item
        thread.join()
        if done.bug is not None:
            raise done.bug


def _next(outbox: queue.Queue[Any], done: _Work) -> Any:
    while True:
        try:
            return outbox.get(timeout=_LOOK)
        except queue.Empty:
            if done.relay is not None:
                done.relay.settle()


class _Work:
    """One unit, from its inputs to its end. `send(None)` is the last thing that it does."""

    def __init__(self, order: Order, contents: dict[str, Content], scratch: Path, send: Send) -> None:
        self.order, self.scratch, self.send = order, scratch, send
        self.contents = contents
        self.relay: Relay | None = None
        self.bug: BaseException | None = None

    def run(self) -> None:
        folder = self.scratch
        try:
            locked, run = self._unpack()
            folder = locked.path.parent.parent
            self._do(locked, run)
        except AblationError as error:
            self._refuse(error, folder)
        except BaseException as error:
            self.bug = error
        finally:
            if self.relay is not None:
                self.relay.close()
            self.send(None)

    def _refuse(self, error: AblationError, folder: Path) -> None:
        """Errors of this program speak of the driver's paths."""
        names = {str(folder / "run"): self.order.names["run"], str(folder / "plans" / self.order.plan): self.order.names["plan"]}

        def named(text: str) -> str:
            for own, there in names.items():
                text = text.replace(own, there)
            return text

        if self.relay is not None:
            self.relay.close()
        self.send(Refused(int(error.exit_code), named(error.message), error.hint and named(error.hint)))

    def _unpack(self) -> tuple[LockedPlan, RunFolder]:
        """The plan and the run folder as far as the driver has sent them."""
        changed = differing(self.order.versions, versions())
        if changed:
            raise UsageError(
                f"worker {platform.node()}: has other versions than the driver: {'; '.join(changed)}",
                hint="Versions are part of a run's record: install the driver's on every machine.",
            )
        home = self.scratch.joinpath(*["up"] * self.order.up)
        run = RunFolder(home / "run")
        for name, content in self.contents.items():
            if not content.whole():
                raise IntegrityError(f"{name}: came to worker {platform.node()} as something else than was sent")
            path = run.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.data)
        plan = home / "plans" / self.order.plan
        plan.parent.mkdir()
        shutil.copyfile(run.plan, plan)
        shutil.copyfile(run.lock, lock_path(plan))
        if run.deviations.is_file():
            shutil.copyfile(run.deviations, deviations_path(plan))
        locked = verify_lock(plan)
        need_model(locked, self.order.places)
        return replace(locked, plan=on_backend(locked.plan, self.order.backend)), run

    def _do(self, locked: LockedPlan, run: RunFolder) -> None:
        order, unit = self.order, self.order.unit
        self.relay = Relay(run.root, order.events, self.send)
        _reporter.send = self.send
        study = WorkerStudy(locked, run, self.relay, _reporter, order.machine)  # type: ignore[arg-type]
        key = (locked.digest, order.backend, order.machine)
        study.models.kept = _kept.pop(key, None)
        for other in [*_kept]:
            _kept.pop(other).policy.close()
        try:
            _ = study.models.policy
            self.send(Holds(study.models.engine))
            if unit.kind == UPDATES:
                study.updates(unit.family, unit.arm, unit.first, unit.last)
            else:
                study.batches(unit.family, unit.arm, unit.stage, unit.updates, unit.batches)
        except BaseException:
            study.models.release()
            raise
        assert study.models.kept is not None
        _kept[key] = study.models.kept


class WorkerStudy(Study):
    """A study whose run is a scratch folder. The driver decides: here no arm is begun, stopped or read out."""

    def updates(self, family: str, arm: str, first: int, last: int) -> None:
        """Updates `first` up to `last`, or to one after which a stop rule fires: the driver writes that down."""
        with suppress(StopRuleFired):
            self._updates(family, arm, first, last)

    def batches(self, family: str, arm: str, stage: str, updates: int, numbers: tuple[int, ...]) -> None:
        """The batches `numbers` of a stage on all cells."""
        folder = stage_folder(self.run, family, arm, stage, updates)
        items = stage_items(self.plan, family, stage, updates, plan_cells(self.plan))
        self.models.hold(family, arm, updates)
        self.models.sample(folder, family, arm, stage, updates, items, only=numbers)

    def sweep(self, family: str) -> Outcomes:
        """As the driver graded it."""
        if family not in self._sweeps:
            folder = self.run.sweep(family)
            stage = read_stage(folder)
            grades = grades_of(folder, stage, self.problems)
            self._sweeps[family] = outcomes(stage, self.problems, self.plan.loops, grades)
        return self._sweeps[family]

    def _apply_stop_rules(self, family: str, arm: str, k: int) -> None:
        if self._fired(family, arm, k) is not None:
            raise StopRuleFired(f"{family}/{arm}: after update {k}")


def stage_folder(run: RunFolder, family: str, arm: str, stage: str, updates: int) -> Path:
    """Of a stage on all cells."""
    if stage == "sweep":
        return run.sweep(family)
    return run.readout(family, arm) if stage == "readout" else run.check(family, arm, updates)


def need_model(locked: LockedPlan, places: dict[str, str]) -> None:
    """Make the base model and the start adapter be where `locked` names them, in this worker.

    A place of a scheme (`package:`, `recipe:`, `hub:`) is looked up as everywhere. For a path there is a link to where the driver
    has it, if this machine sees that, or to a folder of that name in ABLATION_MODELS. Raises `UsageError` for what is nowhere,
    `IntegrityError` for what has another digest than the lock says.
    """
    host = platform.node()
    for field in NEEDED:
        resource = resources_of(locked.plan)[field]
        path = locate(resource, locked.path)
        tried = [path]
        if field in places and not Path(resource.at).is_absolute():
            folders = [one for one in os.environ.get(MODELS, "").split(":") if one]
            tried = [Path(places[field]), *(Path(one) / Path(resource.at).name for one in folders)]
        found = next((one for one in tried if one.exists()), None)
        if found is None:
            raise UsageError(
                f"worker {host}: {field}: `{resource.at}` is not there: {' nor '.join(map(str, tried))}",
                hint=f"Every machine of the cluster needs the model: put it there, or name its folder in {MODELS} there; "
                "`ablation prepare` makes that of a recipe.",
            )
        wanted = locked.lock.resources.get(field, {}).get("sha256") or resource.sha256
        if wanted is not None and (str(found), wanted) not in _proved:
            digest = sha256_path(found)
            if digest != wanted:
                raise IntegrityError(
                    f"worker {host}: {field}: {found} has the digest {digest[:16]}..., the plan was locked with {wanted[:16]}...",
                    hint="Put the model there that the plan was locked with.",
                )
            _proved.add((str(found), wanted))
        if found != path:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(found.resolve())
