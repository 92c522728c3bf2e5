"""`ablation audit RUN`: from the files of a run folder to its labels by a path of its own, compared with all that is stored and
with the engine's verdict. Nothing is raised for a run that is not what it should be: each difference is a line.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablation.audit import judged, kept
from ablation.audit.attempts import Attempts
from ablation.audit.blinded import Blinded
from ablation.audit.chained import read_lines
from ablation.audit.claims import own_claims
from ablation.audit.evaluated import Evaluated
from ablation.audit.events import Events
from ablation.audit.findings import CANNOT, Findings
from ablation.audit.history import History
from ablation.audit.judged import OwnVerdict
from ablation.audit.locked import read_lock
from ablation.audit.others import check_measures
from ablation.audit.read_run import Run
from ablation.audit.sections import OwnSection, Sections, shut
from ablation.audit.told import compare_stored, compare_verdict


@dataclass
class Audited:
    """What came of an audit."""

    root: Path
    plan: str
    digest: str
    found: Findings
    labels: dict[str, str]
    """Section, or `family/arm`, -> label by this audit's own path."""

    @property
    def exit_code(self) -> int:
        """3 if anything differs, 6 if nothing does and something is missing."""
        return 3 if self.found.differences else 6 if self.found.missing else 0

    def as_json(self) -> dict[str, Any]:
        found = self.found
        return {
            "run": str(self.root),
            "plan": {"name": self.plan, "digest": self.digest},
            "labels": self.labels,
            "differences": found.differences,
            "missing": found.missing,
            "checked": dict(found.checked),
            "borrowed": found.borrowed,
            "cannot": [*found.cannot, *CANNOT],
            "notes": found.notes,
            "exit_code": self.exit_code,
        }


def audit_run(root: Path, *, plan: Path | None = None, regrade: bool = False) -> Audited:
    """The audit of the run in `root`. `plan`: the locked plan that it is a run of, if this is not the run's own copy."""
    found = Findings()
    tree = read_lock(root, found)
    if tree is None:
        return Audited(root, "", "", found, {})
    run = Run(root, tree, found, regrade, None if plan is None else plan.with_suffix(".deviations.jsonl"))
    if plan is not None:
        with found.guard(plan):
            if plan.with_suffix(".lock").read_bytes() != (root / "plan.lock").read_bytes():
                found.differ(root / "plan.lock", f"is not the lock of {plan}: the run is of another plan, or it was locked again")
    lines = read_lines(root / "journal.jsonl", "seq", 0, found, "journal")
    if not lines.path.is_file():
        found.differ(lines.path, "is not there")
    names = run.read_all()
    with found.guard(root):
        run.check_pairs()
    history = History(root, tree, lines, found)
    evaluated = Evaluated(run, history)
    with found.guard(root / "evaluations"):
        evaluated.read_all()
        check_measures(evaluated)
    deviations: list[dict[str, Any]] = []
    for check in (lambda: history.check_stages(names), history.check_updates, history.check_records, history.check_order):
        with found.guard(lines.path):
            check()
    with found.guard(root / "deviations.jsonl"):
        deviations = kept.check_deviations(root, tree, history, found, run.beside)
    with found.guard(root.parent / "ledger.jsonl"):
        kept.check_ledger(root, tree, history, run.marked() | evaluated.marked(), found)
    with found.guard(lines.path):
        Events(run, evaluated, history).check_all(deviations)
    own = OwnVerdict(judged.Headline("INCOMPLETE"), [])
    with found.guard(root):
        run.check_extension()
        arms = run.own_arms()
        own = OwnVerdict(judged.headline(tree, arms), arms, sweeps=run.sweeps())
        own.unread = run.unread(arms) | evaluated.unread()
        own.audits = run.audit_ranges(own.headline.stable_arm)
        blinded = Blinded(evaluated, history)
        blinded.check_all()
        own.claims = own_claims(run)
        own.sections = Sections(evaluated, blinded, own.headline, deviations).all()
    fresh, attempts = _engine(root, plan, regrade, found), Attempts(history)
    attempts.say(found)
    if fresh is not None:
        with found.guard("the engine's verdict"):
            told = sorted({one["name"] for one in fresh.get("redone", [])})
            found.same("the engine's verdict", "redone", told, attempts.names, source="the journal tells")
            runs = sorted(str(one["run"]) for one in fresh.get("other_runs", []))
            found.same(
                "the engine's verdict", "other_runs", runs, sorted(run for run, _ in attempts.runs), source="the journal tells"
            )
            compare_verdict("the engine's verdict", fresh, own, tree, found, "this audit finds")
    with found.guard(root / "verdict.json"):
        compare_stored(root / "verdict.json", own, tree, lines, fresh, found)
    _say_what_is_left(run)
    labels = {"replication": kept.decorated(own.headline.label, deviations, attempts.marks())}
    for name, sections in own.sections.items():
        for one in sections or [OwnSection("NOT_RUN", None)]:
            labels[f"{name} {one.subject}" if one.subject else name] = kept.decorated(
                one.label, deviations, [*attempts.marks(), *shut(one)]
            )
    labels |= {f"claim {name}: {subject}": label for name, tests in own.claims.items() for subject, label, _ in tests}
    labels |= {one.name: kept.decorated(one.label, (), attempts.marks_of(one.name)) for one in own.arms}
    return Audited(root, str(tree.plan["name"]), tree.digest, found, labels)


def _engine(root: Path, plan: Path | None, regrade: bool, found: Findings) -> dict[str, Any] | None:
    """The engine's verdict as JSON; None if it refuses, which is a difference unless something is only missing."""
    from ablation.plan.lock import verify_lock
    from ablation.verdict.run import judge_run

    told = None
    with found.guard("the engine refuses this run"):
        locked = verify_lock(plan or root / "plan.yaml")
        for warning in locked.warnings:
            found.note(warning)
        told = json.loads(json.dumps(judge_run(root, locked, None, regrade=regrade).as_json(), allow_nan=False))
    return told


def _say_what_is_left(run: Run) -> None:
    """What is true of this run and not of every one."""
    if any(one.imported is not None for one in run.stages.values()):
        run.found.leave("sampling settings of imported stages: they are as the importer says")
    outside = [name for name, arm in run.tree.arms.items() if arm.get("external") is not None]
    if outside:
        run.found.leave(f"weights of {', '.join(outside)}: a command outside this program trained them")
    engines = {json.dumps(one.partner.info["engine"], sort_keys=True) for one in run.stages.values() if one.imported is None}
    if len(engines) > 1:
        run.found.note(f"stages were sampled by {len(engines)} engines (versions, processor or precision)")
