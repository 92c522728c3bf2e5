"""What comes next in a run, as the command that does it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from ablation.errors import AblationError, IncompleteError
from ablation.plan.deviations import Deviation, opened_by
from ablation.plan.extension import eligible_checks, extension_family
from ablation.plan.lock import LockedPlan
from ablation.plan.phase2 import evaluation_family, guard_set
from ablation.plan.runs import planned_runs
from ablation.rollouts.comparisons import comparison_hours
from ablation.rollouts.folder import RunFolder
from ablation.rollouts.journal_chain import read_journal
from ablation.rollouts.started import options_of_start
from ablation.study.evaluate_subject import subjects_there
from ablation.study.phase2_state import phase2_state
from ablation.study.phase_gates import Gates
from ablation.study.state import RunState, run_state
from ablation.verdict.gated import extended_by_plan
from ablation.verdict.model import NOT_RUN, REPLICATED, WIN_UNVERIFIED
from ablation.verdict.run import RunReader, first_stable_arm


def next_command(locked: LockedPlan, root: Path, deviations: Sequence[Deviation], state: RunState | None = None) -> str:
    """The command that goes on with the run: arms that are left, a step of phase 2 that is open, the verdict. What samples or
    trains has the options that its newest start had; which plan and run it is, and with which backend, is for the caller to add.

    `state`: that of the run, if it is known already.
    """
    command = _next(locked, root, deviations, state or run_state(locked.plan, root, deviations))
    journal = RunFolder(root).journal
    samples = command.startswith(("ablation run", "ablation evaluate"))
    return command + (options_of_start(read_journal(journal)) if samples and journal.is_file() else "")


def _next(locked: LockedPlan, root: Path, deviations: Sequence[Deviation], state: RunState) -> str:
    reader = RunReader(root, locked, None)  # every arm is judged for more than one of the questions below
    if not _all_run(locked, reader, state):
        return "ablation run --all"
    for one in state.extensions:
        begun = one.updates_done > locked.plan.training.updates
        whole = one.updates_done == one.updates and not set(one.checks.values()) & {"no", "partly"}
        if begun and not (whole or one.stopped or one.paused_after):
            return f"ablation run --arm {one.arm} --continue-to {one.updates}"
    try:
        return next(_steps(locked, reader, deviations), "ablation verdict")
    except AblationError:  # a label that cannot be said: the verdict says why
        return "ablation verdict"


def _all_run(locked: LockedPlan, reader: RunReader, state: RunState) -> bool:
    """Whether every run that the plan asks for has come to its end."""
    finished = {(one.family, one.arm) for one in state.arms if one.finished}
    if not finished.issuperset(planned_runs(locked.plan)):
        return False
    try:
        stable = first_stable_arm(state.root, locked, reader)
    except IncompleteError:  # undecided: the verdict says why, and running on cannot change it
        return True
    return finished.issuperset(planned_runs(locked.plan, stable))


def _steps(locked: LockedPlan, reader: RunReader, deviations: Sequence[Deviation]) -> Iterator[str]:
    run, plan = reader.run, locked.plan
    gates = Gates(locked, run.root, reader)
    states = {one.name: one for one in phase2_state(locked, run.root, deviations)}
    there = [one.name for one in subjects_there(locked, run)]

    def done(name: str) -> list[str]:
        return [one.subject for one in states[name].comparisons if one.finished] if name in states else []

    def is_open(name: str, subject: str) -> bool:
        return name in states and (states[name].opened is not None or gates.why_closed(name, subject) is None)

    def is_candidate(subject: str) -> bool:
        allowed = extended_by_plan(gates.phase2)
        return allowed is None or subject.rpartition("@")[0] in allowed

    for one in (comparison for state in states.values() for comparison in state.comparisons if not comparison.finished):
        yield _evaluate(one.set, one.subject, one.reused)
    stable, last = gates.phase2.stable_arm, plan.training.updates
    first = f"{stable}@{last}"
    if first in there and not done("held-out") and is_open("held-out", first):
        yield _evaluate("held-out", first)
    for one in states["held-out"].comparisons if "held-out" in states else []:
        if one.subject != first and first in done("held-out"):
            continue  # a guard may have asked for it; which win is to be verified is that of the arm that was replicated
        if one.read == "no" and gates.held_out(one.subject) == WIN_UNVERIFIED and gates.phase2.read(one.subject).label == NOT_RUN:
            yield f"ablation blind pairs held-out --subject {one.subject}"
        elif one.read == "sealed":
            yield f"ablation blind status held-out --subject {one.subject}"
    for subject in done("held-out"):
        if not done("never-used") and subject in there and is_open("never-used", subject):
            yield _evaluate("never-used", subject)
    yield from _extension(locked, run, deviations, gates, there)
    extended = [subject for subject in there if subject.rpartition("@")[2] != str(last) and is_candidate(subject)]
    for subject in extended:
        if subject not in done("selection") and is_open("selection", subject):
            yield _evaluate("selection", subject, _same_day_reference(locked, run, "selection", done("selection")))
    tried = gates.selected if gates.selects else first
    release = plan.verdict.release
    guarded = {guard_set(guard).replace("_", "-") for guard in release.guards} if release is not None else set()
    for name in ("main", "agent", "safety", *sorted(guarded & {"held-out", "never-used"})):
        if tried in there and tried not in done(name) and is_open(name, tried):
            yield _evaluate(name, tried)
    for one in states["safety"].comparisons if "safety" in states else []:
        if one.read != "unsealed":
            yield f"ablation blind {'pairs' if one.read == 'no' else 'status'} safety --subject {one.subject}"


def _extension(
    locked: LockedPlan, run: RunFolder, deviations: Sequence[Deviation], gates: Gates, there: Sequence[str]
) -> Iterator[str]:
    """The extension, where the plan has a selection among its checkpoints and it was not begun."""
    extension = locked.plan.extension
    if extension is None or extension.selection is None or extension_family(locked.plan) != evaluation_family(locked.plan):
        return
    if opened_by(deviations, "extension") is None and gates.replication != REPLICATED:
        return
    arms = [gates.phase2.stable_arm] if isinstance(extension.arms, str) else extension.arms
    for arm in (arm for arm in arms if arm is not None and f"{arm}@{locked.plan.training.updates}" in there):
        begun = run.update(evaluation_family(locked.plan), arm, locked.plan.training.updates + 1).is_dir()
        if not begun:
            yield f"ablation run --arm {arm} --continue-to {max(eligible_checks(extension))}"


def _same_day_reference(locked: LockedPlan, run: RunFolder, name: str, done: Sequence[str]) -> str | None:
    """The newest comparison of `done` on the set whose reference is still young enough to be taken over; None if there is none.

    Candidates of a selection are compared with each other, so one start for all of them is the better comparison.
    """
    events, now = read_journal(run.journal) if done else [], datetime.now(UTC)
    age = {subject: comparison_hours(events, name, subject, now) for subject in done}
    young = {one: hours for one, hours in age.items() if hours is not None and hours <= locked.plan.evaluation.same_day_hours}
    return min(young, key=lambda one: young[one], default=None)


def _evaluate(name: str, subject: str, reused: str | None = None) -> str:
    return f"ablation evaluate {name} --subject {subject}" + (f" --reuse-reference {reused}" if reused else "")
