"""All that a report is made of, gathered once: what the verdict, the audits, the journal and the plan say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ablation.plan.lock import LockedPlan
from ablation.plan.model import Plan
from ablation.plan.proofs import Proof
from ablation.power.power import Power
from ablation.report.post.cost import Money, RunCost, run_cost, run_money, services_of
from ablation.report.post.curves import Curves, Point
from ablation.report.post.document import Label, Tone
from ablation.report.post.flow import Flow, flow
from ablation.report.post.traces import Traces, pointer
from ablation.report.verdict_parts import GOOD, OPEN
from ablation.training.run_audit import RunAudit, audit_run
from ablation.verdict.locked import Locked
from ablation.verdict.model import PASSED, SELECTED, WIN, SectionVerdict, Verdict


@dataclass(frozen=True)
class Study:
    """One run, or one file of reported figures."""

    plan: Plan
    verdict: Verdict
    traces: Traces
    locked_at: str | None = None
    """None: the plan is not locked (reported figures alone)."""
    locked_by: str | None = None
    bytes_sha256: str | None = None
    proofs: Sequence[Proof] = ()
    luck: Power | None = None
    """The simulation that was printed when the plan was locked, made again."""
    plan_file: str = "plan.yaml"
    """How commands name the plan."""
    events: Sequence[dict[str, Any]] = ()
    """Of the journal, whose chain holds."""
    audit: RunAudit | None = None
    points: Sequence[Point] = ()
    path: Path | None = None
    """The run folder."""
    warnings: Sequence[str] = ()
    """What the lock differs in from now, and what is odd about the run."""
    cost: RunCost = field(default_factory=RunCost)
    money: Money | None = None
    """By the plan's prices; None: it names none."""

    @cached_property
    def content(self) -> dict[str, Any]:
        """`verdict.json`."""
        return self.verdict.as_json()

    @cached_property
    def flow(self) -> Flow:
        return flow(self.plan, self.verdict, self.path)

    @property
    def reported(self) -> bool:
        """There are no rollouts behind it."""
        return self.path is None

    def label(self, bare: str, shown: str | None = None) -> Label:
        """`shown`: with everything that stands beside it; left out: as the headline's label is shown."""
        return Label(self.verdict.shown(bare) if shown is None else shown, tone_of(bare))

    def of_section(self, one: SectionVerdict) -> Label:
        return Label(self.verdict.shown_section(one), tone_of(one.label))

    def section_place(self, name: str, one: SectionVerdict) -> str:
        """Where a section's verdict for one subject stands in `verdict.json`."""
        whole = self.verdict.sections[name]
        if one is whole:
            return pointer("sections", name)
        return pointer("sections", name, "others", [id(other) for other in whole.others].index(id(one)))

    def data(self) -> dict[str, Any]:
        """Numbers that only the report has, as plain data: `data.json`, and what `--at` finds."""
        return {
            "plan": {"name": self.plan.name, "digest": self.verdict.digest},
            "labels": self.content["labels"],
            "curves": [one.as_json() for one in self.points],
            "flow": self.flow.as_json(),
            "cost": self.cost.as_json() | {"money": None if self.money is None else self.money.as_json()},
            "environments": self.environments,
        }

    @cached_property
    def environments(self) -> list[dict[str, Any]]:
        """Every environment that a model was loaded in, each once, in order."""
        found: list[dict[str, Any]] = []
        for event in self.events:
            environment = event.get("environment") if event.get("event") == "model_loaded" else None
            if environment and environment not in found:
                found.append(environment)
        return found


def tone_of(bare: str) -> Tone:
    """How a label is set: a result that was hoped for, one that was not, or none yet."""
    return "good" if bare in (*GOOD, SELECTED, WIN, PASSED) else "open" if bare in OPEN else "bad"


def study_of_run(
    root: Path,
    locked: LockedPlan,
    verdict: Verdict,
    events: Sequence[dict[str, Any]],
    traces: Traces,
    *,
    proofs: Sequence[Proof] = (),
    luck: Power | None = None,
    plan_file: str = "plan.yaml",
    warnings: Sequence[str] = (),
) -> Study:
    """Everything of a run. Raises as `training.run_audit.audit_run` does."""
    plan = locked.plan
    drift = Curves(root, locked)
    audit = audit_run(root, locked, families=list(plan.families), arms=list(plan.arms), seen=drift.take)
    cost = run_cost(events, services_of(root, events))
    return Study(
        plan=plan,
        verdict=verdict,
        traces=traces,
        locked_at=locked.lock.locked_at,
        locked_by=locked.lock.locked_by,
        bytes_sha256=locked.bytes_sha256,
        proofs=proofs,
        luck=luck,
        plan_file=plan_file,
        events=events,
        audit=audit,
        points=list(drift.points()),
        path=root,
        warnings=[*locked.warnings, *warnings],
        cost=cost,
        money=run_money(plan.prices, cost, events, root),
    )


def study_of_figures(
    locked: Locked, verdict: Verdict, traces: Traces, *, luck: Power | None, plan_file: str, lock: Any | None
) -> Study:
    """Of reported figures. `lock`: the plan's, if it has one."""
    return Study(
        plan=locked.plan,
        verdict=verdict,
        traces=traces,
        locked_at=None if lock is None else lock.locked_at,
        locked_by=None if lock is None else lock.locked_by,
        bytes_sha256=None if lock is None else lock.bytes_sha256,
        luck=luck,
        plan_file=plan_file,
    )
