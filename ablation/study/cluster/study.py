"""The driver's study: the plan's order and gates here, everything that needs a model in workers."""

from __future__ import annotations

import shutil
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any

from ablation.errors import IntegrityError, UsageError, WorkerLost
from ablation.files import MARKER, sha256_bytes, write_bytes, write_folder
from ablation.ledger.ledger import ledger_path
from ablation.plan.locate import SCHEMES, locate, resources_of
from ablation.plan.lock import LockedPlan
from ablation.rollouts.folder import RunFolder, inflight_file, inflight_folder, part_file, stage_file
from ablation.rollouts.journal_chain import SAMPLED
from ablation.rollouts.outcomes import Outcomes
from ablation.rollouts.store import finish_stage, part_info, stage_is_complete, stage_record
from ablation.study.cluster.dispatch import Dispatch, Inputs, files_below
from ablation.study.cluster.head import head_watched
from ablation.study.cluster.join import Cluster, joined
from ablation.study.cluster.messages import BATCHES, UPDATES, Content, Delivery, Order, Unit
from ablation.study.cluster.turns import Turns
from ablation.study.cluster.versions import versions
from ablation.study.cluster.worker import NEEDED, stage_folder
from ablation.study.journal import Journal
from ablation.study.machine import DEFAULT, Machine
from ablation.study.runner import Study
from ablation.study.sampler import Item, Reporter, mark_sampled, stage_items
from ablation.study.schedule import cells_of_update, plan_cells
from ablation.study.session import run_session
from ablation.study.updates import update_is_done

_LOOKED_FOR = ("stage_graded", "deviation")
"""Events that the code of a unit looks for in a journal."""
_ABOVE = 8
"""Folders above a plan's own in which what it names may lie."""


class ClusterStudy(Study):
    """A study whose sampling and training is done by the workers of `cluster`. Use `open_cluster_study`."""

    def __init__(
        self, locked: LockedPlan, run: RunFolder, journal: Journal, reporter: Reporter, machine: Machine, cluster: Cluster
    ) -> None:
        super().__init__(locked, run, journal, reporter, machine)
        self.machine = machine
        self.turns = Turns()
        self.dispatch = Dispatch(cluster, self.turns, reporter, self._deliver, self._same_engine, self._tell_of_loss)
        self._sampling: dict[str, threading.Lock] = defaultdict(threading.Lock)
        self._engines: dict[Path, tuple[str, dict[str, Any]]] = {}
        journal.append("cluster_joined", **cluster.record())

    def run_all(self) -> None:
        pairs = [(self.plan.main_family, arm) for arm in self.plan.arms]
        self._refuse_external([arm for family, arm in pairs if not self._is_over(family, arm)])
        super().run_all()

    def run_arm(self, family: str, arm: str) -> None:
        if self.turns.mine:
            super().run_arm(family, arm)
            return
        self._refuse_external([] if self._is_over(family, arm) else [arm])
        self.turns.together([lambda: Study.run_arm(self, family, arm)], self.dispatch.cancel)

    def extend_arm(self, family: str, arm: str, continue_to: int) -> None:
        self._refuse_external([arm])
        self.turns.together([lambda: Study.extend_arm(self, family, arm, continue_to)], self.dispatch.cancel)

    def sweep(self, family: str) -> Outcomes:
        """As `Study.sweep`; whoever comes while it is being sampled waits for it."""
        if family in self._sweeps:
            return self._sweeps[family]
        lock, held = self._sampling[family], False
        try:
            with self.turns.aside():  # at its end the run may be over, and others wait for this lock, too
                held = lock.acquire()
            return super().sweep(family)
        finally:
            if held:
                lock.release()

    def _is_over(self, family: str, arm: str) -> bool:
        return stage_is_complete(self.run.readout(family, arm)) or self.run.stopped(family, arm).is_file()

    def _refuse_external(self, arms: Sequence[str]) -> None:
        outside = [arm for arm in arms if self.plan.arms[arm].external is not None]
        if outside:
            raise UsageError(
                f"--on: arm {', '.join(outside)} is trained by a command of its own, which is not sent to other machines",
                hint=f"Run it here, without --on, before or after the others: ablation run --arm {outside[0]}",
            )

    def _run_each(self, pairs: Sequence[tuple[str, str]]) -> None:
        """All of them beside each other, as far as there are places."""

        def begun(pair: tuple[str, str]):
            return lambda: self._run_or_note(*pair)

        failed = [one for one in self.turns.together([begun(pair) for pair in pairs], self.dispatch.cancel) if one is not None]
        if failed:
            raise failed[0]

    def _sample_all_cells(self, folder: Path, family: str, arm: str, stage: str, updates: int) -> None:
        title = folder.relative_to(self.run.root).as_posix()
        items = stage_items(self.plan, family, stage, updates, plan_cells(self.plan))
        count = -(-len(items) // self.plan.sampling.batch_rollouts)
        self._mark(title, stage, items)
        missing = [number for number in range(count) if not part_file(folder, number).is_file()]
        shares = _dealt(missing, self.dispatch.free)

        def one(share: list[int]):
            return lambda: self._batches(family, arm, stage, updates, share)

        done = self.turns.together([one(share) for share in shares], self.dispatch.cancel)
        lost = [one for one in done if isinstance(one, WorkerLost)]
        if lost:
            raise lost[0]
        names = [part_file(folder, number).name for number in range(count)]
        info = part_info(folder / names[0])
        shutil.rmtree(inflight_folder(folder), ignore_errors=True)
        # The event goes first, see StageSampler.sample.
        self.journal.append(
            "stage_sampled",
            stage=title,
            rollouts=len(items),
            tokens=sum(tokens for tokens, _ in done),
            seconds=round(sum(seconds for _, seconds in done), 3),
            stage_sha256=sha256_bytes(stage_record(folder, info, names)),
        )
        finish_stage(folder, info, names)

    def _batches(self, family: str, arm: str, stage: str, updates: int, share: list[int]) -> tuple[int, float] | WorkerLost:
        """Batches of a stage by one worker after the other; (tokens, seconds of sampling). What is lost ends not the others."""
        folder = stage_folder(self.run, family, arm, stage, updates)
        main = self.run.sweep(self.plan.main_family)

        def left() -> Inputs | None:
            numbers = tuple(one for one in share if not part_file(folder, one).is_file())
            if not numbers:
                return None
            files = [stage_file(main)] if folder != main else []
            files += sorted(folder.glob("part-*.parquet"))[:1]  # to be compared with
            files += [inflight_file(folder, one) for one in numbers]
            files += [self.run.checkpoint(family, arm, updates)] if updates else []
            return self._inputs(Unit(BATCHES, family, arm, stage, updates, batches=numbers), files_below(self.run.root, *files))

        try:
            return self.dispatch.done(left)
        except WorkerLost as lost:
            return lost

    def _updates(self, family: str, arm: str, first: int, last: int) -> bool:
        undone = [k for k in range(first, last + 1) if not update_is_done(self.run, family, arm, k)]
        if undone:
            super()._updates(family, arm, first, undone[0] - 1)  # a stop rule may have fired there
            sweeps = {self.run.sweep(one) for one in (self.plan.main_family, family)}

            def left() -> Inputs | None:
                k = next((k for k in undone if not update_is_done(self.run, family, arm, k)), None)
                if k is None or (k > 1 and self._fired(family, arm, k - 1) is not None):
                    return None
                unit = Unit(UPDATES, family, arm, "update", k - 1, first=k, last=last)
                files = files_below(self.run.root, *sorted(sweeps), self.run.update(family, arm, k), without=["checkpoint"])
                audits = [self.run.audit(family, arm, one) for one in range(1, k)]
                before = [self.run.checkpoint(family, arm, k - 1)] if k > 1 else []
                return self._inputs(unit, files | files_below(self.run.root, *audits, *before))

            self.dispatch.done(left)
        return super()._updates(family, arm, first, last) or bool(undone)

    def _train(self, family: str, arm: str, k: int) -> None:
        raise AssertionError(f"{family}/{arm}: update {k} is a worker's")

    def _inputs(self, unit: Unit, files: dict[str, Path]) -> Inputs:
        copies = [self.run.plan, self.run.lock, self.run.problems, self.run.deviations]
        files |= files_below(self.run.root, *copies)
        places = {
            field: str(locate(resource, self.locked.path).resolve())
            for field, resource in resources_of(self.plan).items()
            if field in NEEDED and not resource.at.startswith(SCHEMES)
        }
        order = Order(
            unit=unit,
            plan=self.locked.path.name,
            places=places,
            up=_ABOVE,
            backend=self.plan.policy.backend,
            machine=self.machine,
            versions=versions(),
            events=tuple(event for event in self.journal.events if event["event"] in _LOOKED_FOR),
            names={"run": str(self.run.root), "plan": str(self.locked.path)},
        )
        return unit, order, files

    def _deliver(self, unit: Unit, worker: str, delivery: Delivery) -> None:
        """Write an event and then the files that it tells of."""
        own = f"{unit.family}/{unit.arm}/"
        if unit.kind == BATCHES:
            own = (
                stage_folder(self.run, unit.family, unit.arm, unit.stage, unit.updates).relative_to(self.run.root).as_posix()
                + "/"
            )
        for name in (*delivery.files, *delivery.removed):
            if not name.startswith(own) or ".." in PurePosixPath(name).parts:
                raise IntegrityError(f"{worker}: delivered {name}, which is not of {unit.name}")
        for name, content in delivery.files.items():
            if not content.whole():
                raise IntegrityError(
                    f"{name}: came from {worker} as something else than was sent", hint="Run the same command again."
                )
        if unit.kind == UPDATES and delivery.event in SAMPLED:
            k = int(str(delivery.data["stage"]).rpartition("-")[2])
            self._mark(delivery.data["stage"], "update", self._items_of_update(unit.family, k))
        if delivery.event is not None:
            self.journal.append(delivery.event, **delivery.data, worker=worker)
        self._write(delivery.files)
        for name in delivery.removed:
            (self.run.root / name).unlink(missing_ok=True)

    def _items_of_update(self, family: str, k: int) -> list[Item]:
        return stage_items(self.plan, family, "update", k, cells_of_update(self.plan, family, k))

    def _write(self, files: dict[str, Content]) -> None:
        """Each file complete or not at all, and a folder that has a marker as a whole; what marks a stage comes last."""
        folders = {PurePosixPath(name).parent for name in files if PurePosixPath(name).name == MARKER}
        for folder in folders:
            inside = {
                PurePosixPath(name).relative_to(folder): one
                for name, one in files.items()
                if folder in PurePosixPath(name).parents
            }

            def fill(empty: Path, inside=inside) -> None:
                for name, content in inside.items():
                    if name.name != MARKER:
                        (empty / name).parent.mkdir(parents=True, exist_ok=True)
                        (empty / name).write_bytes(content.data)

            write_folder(self.run.root / folder, fill)
        rest = [name for name in files if not folders & set(PurePosixPath(name).parents)]
        for name in sorted(rest, key=lambda one: (PurePosixPath(one).name == "stage.json", one)):
            write_bytes(self.run.root / name, files[name].data)

    def _same_engine(self, unit: Unit, worker: str, engine: dict[str, Any]) -> None:
        """Raise `IntegrityError` if another engine has sampled some of the stage: nobody's batches are mixed with others'."""
        if unit.kind != BATCHES:
            return
        folder = stage_folder(self.run, unit.family, unit.arm, unit.stage, unit.updates)
        parts = sorted(folder.glob("part-*.parquet"))
        other, began = self._engines.setdefault(folder, (worker, engine))
        if parts:
            other, began = "its first part", part_info(parts[0]).engine
        changed = [
            f"{name} {began.get(name)} -> {engine.get(name)}" for name in began | engine if began.get(name) != engine.get(name)
        ]
        if changed:
            raise IntegrityError(
                f"{folder}: {worker} samples with another engine than {other}: {', '.join(sorted(changed))}",
                hint="A stage never mixes engines: the machines of a run must be of one kind.",
            )

    def _tell_of_loss(self, unit: Unit, worker: str, why: str) -> None:
        self._engines.clear()
        self.journal.append("worker_lost", unit=unit.name, worker=worker, why=why)

    def _mark(self, title: str, stage: str, items: Sequence[Item]) -> None:
        ledger = ledger_path(self.locked.path)
        mark_sampled(ledger, self.plan, self.locked.digest, title, stage, items, self.problems, self.journal)


def _dealt(numbers: Sequence[int], shares: int) -> list[list[int]]:
    """`numbers` in at most so many runs of neighbours, whose lengths differ by at most one."""
    count = min(shares, len(numbers))
    ends = [len(numbers) * place // count for place in range(count + 1)] if count else [0]
    return [list(numbers[begin:end]) for begin, end in pairwise(ends)]


@contextmanager
def open_cluster_study(
    locked: LockedPlan, root: Path, reporter: Reporter, machine: Machine = DEFAULT, *, address: str
) -> Iterator[ClusterStudy]:
    """As `runner.open_study`, with the work done by the cluster at `address` (see `join.parse_on`)."""
    policy = locked.plan.policy
    if policy.backend not in ("local", "vllm") or (policy.vllm is not None and policy.vllm.engine == "server"):
        where = "a server" if policy.vllm is not None else f"`{policy.backend}`"
        raise UsageError(
            f"--on: the run samples from {where}, which all workers would ask at one time",
            hint="Leave --on out: the work of such a run is done there, not here.",
        )
    if machine.processes > 1:
        raise UsageError("--on: an update in several processes (--processes) is of this machine; a worker trains in one")
    with joined(address, policy, machine, reporter.say) as cluster, run_session(locked, root, reporter) as (run, journal):
        study = ClusterStudy(locked, run, journal, reporter, machine, cluster)
        for deviation in study.deviations:
            reporter.say(f"note: {deviation.in_words()}")
        with head_watched(cluster.head, study.turns.end):
            yield study
