"""A run's audits: read, checked against what the arms promise, and computed again from the rollouts where that needs no model."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ablation.errors import IntegrityError
from ablation.files import parse_json, sha256_file
from ablation.plan.arms import Arm
from ablation.plan.lock import LockedPlan
from ablation.plan.model import START
from ablation.problems.problem import Problem, load_problems
from ablation.rollouts.folder import RunFolder
from ablation.rollouts.grades import grades_of
from ablation.rollouts.journal_chain import check_journal
from ablation.rollouts.outcomes import Outcomes, outcomes
from ablation.rollouts.stage import Stage
from ablation.rollouts.store import read_stage, stage_is_complete
from ablation.rollouts.thinking import split
from ablation.training.audit import audit_weights, check_audit
from ablation.training.batch import WeightedUpdate, weigh_update
from ablation.training.identities import Identity, identities
from ablation.training.scale import fixed_scale, sweep_reference
from ablation.training.stops import rollout_metrics
from ablation.verdict.completeness import check_stage_of_plan

TOLERANCE = 1e-9
"""Largest difference between a stored and a recomputed number, of the number or of the absolute weight: another version of numpy
adds in another order."""


@dataclass(frozen=True)
class Recomputed:
    """How a stored audit compares with what the rollouts give."""

    whole: bool
    """The weights themselves were computed again; otherwise only what needs no logprob of the trainer."""
    why_not: str | None
    exact: bool
    """Every compared number is the same to the last bit."""
    differs: list[str] = field(default_factory=list)
    """Fields that differ by more than rounding, with both values."""


@dataclass(frozen=True)
class UpdateAudit:
    """One update of one arm."""

    family: str
    arm: str
    audit: dict[str, Any]
    weightless: int
    """Rollouts without a weighted token."""
    identities: list[Identity]
    recomputed: Recomputed | None = None

    @property
    def update(self) -> int:
        return self.audit["update"]

    def problems(self) -> Iterator[str]:
        """A line for each identity that fails and each number that is not what the rollouts give."""
        where = f"{self.family}/{self.arm}/update-{self.update}"
        for one in self.identities:
            if not one.holds:
                yield f"{where}: does not hold: {one.as_json()['words']} (off by {one.found:.3g}, limit {one.limit:g})"
        for line in self.recomputed.differs if self.recomputed else ():
            yield f"{where}: {line}"


@dataclass(frozen=True)
class OutsideUpdate:
    """What a command outside this program trained: there are no weights of ours to audit."""

    family: str
    arm: str
    audit: dict[str, Any]


@dataclass(frozen=True)
class RunAudit:
    """All audits that were asked for, by family and arm in plan order."""

    updates: list[UpdateAudit]
    notes: list[str]
    outside: list[OutsideUpdate] = field(default_factory=list)
    """Updates of external arms."""

    def problems(self) -> list[str]:
        return [line for one in self.updates for line in one.problems()]


def audit_run(
    root: Path,
    locked: LockedPlan,
    *,
    families: Collection[str],
    arms: Collection[str],
    recompute: bool = False,
    seen: Callable[[Stage], None] | None = None,
) -> RunAudit:
    """The audits of these arms in these families, checked. Nothing is raised for an identity that fails. `seen` is called with
    the rollouts of every update of ours, for whoever needs them, too.

    Raises `IntegrityError` if the folder is of another plan, the journal does not fit it, an audit was edited or removed, or its
    rollouts are not those that were sampled.
    """
    reader = _Reader(root, locked, seen)
    journal = check_journal(root, locked.digest)
    trained = {
        (event.get("arm"), event.get("update")): event.get("audit_sha256")
        for event in journal.events
        if event.get("event") == "update_trained"
    }
    found, outside, unbound = [], [], False
    for family in families:
        for arm in arms:
            name = f"{family}/{arm}"
            gone = [k for who, k in trained if who == name and not reader.run.audit(family, arm, k).is_file()]
            if gone:
                path = reader.run.audit(family, arm, gone[0])
                raise IntegrityError(f"{path}: is not there, but the journal tells of that update's training")
            for k in reader.audited(family, arm):
                if locked.plan.arms[arm].external is not None:
                    outside.append(OutsideUpdate(family, arm, reader.outside(family, arm, k)))
                    continue
                found.append(reader.update(family, arm, k, recompute))
                unbound |= trained.get((name, k)) is None
    notes = list(journal.notes)
    if unbound and not recompute:
        notes.append(
            "the journal holds no digest of some of these audits (an earlier version of this program wrote it, or their update "
            "has not ended): --recompute compares them with the rollouts"
        )
    return RunAudit(found, notes, outside)


def update_weights(
    root: Path, locked: LockedPlan, family: str, arm: str, update: int
) -> tuple[list[tuple[str, str, int]], list[np.ndarray]] | str:
    """(problem, effort and index of each rollout of the update; its weights, R arrays [T_i]), computed from the rollouts.

    A sentence instead where that needs the model, or where a command outside this program trained. Raises as `audit_run`.
    """
    reader, own = _Reader(root, locked), locked.plan.arms.get(arm)
    if own is None or own.external is not None:
        return f"{arm} was trained outside this program, which knows no weights of it"
    audit = reader.update(family, arm, update, recompute=False).audit
    stage = reader.stage(reader.run.update(family, arm, update), family, arm, "update", update)
    why_not = _needs_model(own, stage, audit)
    if why_not is not None:
        return why_not
    names = list(zip(stage.problem, stage.effort, stage.index.tolist(), strict=True))
    return names, reader.weighted(own, stage, reader.outcomes(stage), None)[0].weights.tokens


class _Reader:
    """Reads each stage of a run once."""

    def __init__(self, root: Path, locked: LockedPlan, seen: Callable[[Stage], None] | None = None) -> None:
        self.run, self.locked, self.plan, self.seen = RunFolder(Path(root)), locked, locked.plan, seen
        self.sweep = cache(self._sweep)
        self.problems = cache(self._problems)

    def audited(self, family: str, arm: str) -> list[int]:
        """Updates of the arm that have an audit, in order."""
        paths = self.run.arm(family, arm).glob("update-*/audit.json")
        names = [path.parent.name.removeprefix("update-") for path in paths]
        return sorted(int(name) for name in names if name.isdecimal() and str(int(name)) == name)

    def update(self, family: str, arm_name: str, k: int, recompute: bool) -> UpdateAudit:
        path, arm = self.run.audit(family, arm_name, k), self.plan.arms[arm_name]
        stage = self.stage(self.run.update(family, arm_name, k), family, arm_name, "update", k)
        weightless = _weightless(arm, stage)
        if self.seen is not None:
            self.seen(stage)
        try:
            audit = parse_json(path.read_bytes())
            check_audit(audit)
            if audit["update"] != k:
                raise ValueError("another update")
            checks = identities(arm, audit, weightless=weightless)
            if not all(math.isfinite(one.found) for one in checks):
                raise ValueError("sums beyond all numbers")
        except (ValueError, KeyError, TypeError, OverflowError):
            raise IntegrityError(f"{path}: is not an audit of the weights of update {k}") from None
        again = self.recompute(arm, stage, audit) if recompute else None
        return UpdateAudit(family, arm_name, audit, weightless, checks, again)

    def outside(self, family: str, arm_name: str, k: int) -> dict[str, Any]:
        """The audit of an update that a command trained."""
        path = self.run.audit(family, arm_name, k)
        try:
            audit = parse_json(path.read_bytes())
            if audit["update"] != k or audit["weights"] is not None:
                raise ValueError("another update")
            step, external = audit["step"], audit["external"]
            texts = [step["outcome"], external["adapter_after"], external["command_sha256"]]
            if not all(isinstance(one, str) for one in texts) or not isinstance(step["stepped"], bool):
                raise ValueError("fields of another type")
            math.isfinite(step["change_norm"])
        except (ValueError, KeyError, TypeError):
            raise IntegrityError(f"{path}: is not an audit of update {k}, which a command trained") from None
        return audit

    def stage(self, folder: Path, *who: Any) -> Stage:
        if not stage_is_complete(folder):
            raise IntegrityError(f"{folder}: the rollouts are not there, or not whole", hint="Put them back from a copy.")
        stage = read_stage(folder)
        check_stage_of_plan(stage, self.plan, self.locked.digest, who, folder)
        return stage

    def outcomes(self, stage: Stage) -> Outcomes:
        """What became of the rollouts of an update."""
        folder = self.run.update(stage.info.family, stage.info.arm, stage.info.update)
        return outcomes(stage, self.problems(), self.plan.loops, grades_of(folder, stage, self.problems()))

    def weighted(self, arm: Arm, stage: Stage, own: Outcomes, why_not: str | None) -> tuple[WeightedUpdate, float]:
        """(the weights of `stage`, s0). Where the model would be needed, clip and KL term are left out."""
        weighed = arm.model_copy(update={"clip": None, "kl": None if why_not else arm.kl})
        same = [np.zeros(length) for length in stage.lengths]  # at update 1 the trainer is the start
        s0 = fixed_scale(self.plan.training, lambda: self.sweep(self.plan.main_family))
        weighted = weigh_update(
            weighed,
            self.plan,
            stage,
            own,
            reference=sweep_reference(self.sweep(stage.info.family)),
            s0=s0,
            trainer_logprobs=lambda: same,
            start_logprobs=lambda: same,
        )
        return weighted, s0

    def recompute(self, arm: Arm, stage: Stage, audit: dict[str, Any]) -> Recomputed:
        """`audit` against what the rollouts of `stage` give."""
        own, why_not = self.outcomes(stage), _needs_model(arm, stage, audit)
        weighted, s0 = self.weighted(arm, stage, own, why_not)  # everything but the weights is still compared
        weights = audit_weights(weighted.weights, own.truncated, own.source.tolist(), own.effort.tolist())
        kept = {"rollouts", "no_signal_cells"} if why_not is not None else set(weights)
        expected = {
            "learning_rate": self.plan.training.learning_rate_of(arm),
            "s0": s0,
            "reward_mean": float(weighted.rewards_R.mean()),
            "metrics": rollout_metrics(own),
            "weights": {name: value for name, value in weights.items() if name in kept},
        }
        exact, differs = _compare(expected, audit, weights["absolute_weight"] or 0.0)
        return Recomputed(why_not is None, why_not, exact, differs)

    def _sweep(self, family: str) -> Outcomes:
        stage = self.stage(self.run.sweep(family), family, START, "sweep", 0)
        return outcomes(stage, self.problems(), self.plan.loops, grades_of(self.run.sweep(family), stage, self.problems()))

    def _problems(self) -> dict[str, Problem]:
        wanted = self.locked.lock.resources.get("problems.training", {}).get("sha256")
        if not self.run.problems.is_file() or (wanted is not None and sha256_file(self.run.problems) != wanted):
            raise IntegrityError(
                f"{self.run.problems}: is not the file of training problems that the plan was locked with",
                hint="Put back the copy that the run began with.",
            )
        return load_problems(self.run.problems)


def _weightless(arm: Arm, stage: Stage) -> int:
    if arm.tokens == "response":
        return 0
    thinking = split(stage)
    return int(np.count_nonzero(thinking.lengths + thinking.closed == 0))


def _needs_model(arm: Arm, stage: Stage, audit: dict[str, Any]) -> str | None:
    """Why the weights cannot be computed without the model, or None. A clip that cut nothing leaves no mark on them."""
    if arm.kl is not None and stage.info.update > 1:
        return "the KL term needs the logprobs of trainer and start"
    if arm.clip is not None and audit["weights"].get("clipped_tokens") != 0:
        return "the clip needs the trainer's logprobs"
    return None


def _compare(expected: Any, stored: Any, absolute: float, where: str = "") -> tuple[bool, list[str]]:
    """(whether all numbers are the same to the last bit, what differs by more than rounding).

    A field that `stored` does not have is passed over: an earlier version of this program did not write it.
    """
    if isinstance(expected, dict) and isinstance(stored, dict):
        below = [
            _compare(value, stored[name], absolute, f"{where}.{name}" if where else name)
            for name, value in expected.items()
            if name in stored
        ]
        differs = [line for _, lines in below for line in lines]
        if where.endswith(("by_source", "by_effort")) and expected.keys() != stored.keys():
            differs.append(f"{where} has {', '.join(sorted(stored))}; the rollouts have {', '.join(sorted(expected))}")
        return all(exact for exact, _ in below) and not differs, differs
    if expected == stored:
        return True, []
    if isinstance(expected, float) and isinstance(stored, int | float) and math.isfinite(stored):
        size = absolute if where.endswith("net_weight") else 1.0 if where.endswith("share") else abs(expected)
        if abs(expected - stored) <= TOLERANCE * size:
            return False, []
    return False, [f"{where} is {stored!r}; the rollouts give {expected!r}"]
