"""`ablation status`: how far a run is."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ablation.cli.fit import echo
from ablation.cli.machine_options import Backend
from ablation.cli.run_folder import PlanOption, RunOption, RunPath, named_run
from ablation.cli.say import say

if TYPE_CHECKING:
    from ablation.cli.watch import Watcher
    from ablation.errors import IntegrityError
    from ablation.plan.lock import LockedPlan
    from ablation.study.phase2_state import SetState
    from ablation.study.state import ArmState, ExtensionState


def status(
    path: RunPath = None,
    plan: PlanOption = None,
    run: RunOption = None,
    policy: Backend = None,
    watch: bool = typer.Option(False, "--watch", help="Go on showing it, until Ctrl-C."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """Show what is locked, what has been sampled and trained, and whether a runner is at work."""
    from ablation.errors import UsageError

    run_folder = named_run(path, run, plan)
    if watch and as_json:
        raise UsageError("--watch is for eyes; --json says once how far it is")
    if watch:
        from ablation.cli.watch import watch as go_on

        go_on(lambda: _watcher(plan, run_folder, policy), lambda: _say(plan, run_folder, policy, False))
    else:
        _say(plan, run_folder, policy, as_json)


def _watcher(plan: Path | None, run_folder: Path | None, policy: str | None) -> Watcher:
    from ablation.cli.watch import Watcher

    return Watcher(*_found(plan, run_folder, policy))


def _found(plan: Path | None, run_folder: Path | None, policy: str | None) -> tuple[LockedPlan, Path, str]:
    """(the locked plan, its run folder, options for a printed command); of a folder alone its own copy of the plan counts."""
    from ablation.plan.choose import choose_plan, command_options, named_options
    from ablation.plan.lock import lock_path, verify_lock
    from ablation.rollouts.folder import RunFolder
    from ablation.study.run_folder import chosen_root, own_plan

    if plan is None and run_folder is not None and RunFolder(run_folder).lock.is_file():
        own = own_plan(run_folder)
        beside = Path("plans") / f"{own.plan.name}.yaml"
        if not lock_path(beside).is_file() or verify_lock(beside).digest != own.digest:
            _, named = chosen_root(own, policy, run_folder)
            return own, run_folder, named_options(None, run_folder, named)
        plan = beside
    locked = verify_lock(choose_plan(plan))
    root, named = chosen_root(locked, policy, run_folder)
    return locked, root, command_options(locked.path, run_folder, named)


def _say(plan: Path | None, run_folder: Path | None, policy: str | None, as_json: bool) -> None:
    from ablation.study.deviations import known_deviations
    from ablation.study.next_steps import next_command
    from ablation.study.phase2_state import phase2_state
    from ablation.study.runlock import runner_at_work
    from ablation.study.state import run_state

    locked, root, options = _found(plan, run_folder, policy)
    deviations = known_deviations(locked, root)
    state, worker = run_state(locked.plan, root, deviations), runner_at_work(root)
    sets = phase2_state(locked, root, deviations)
    following = f"{next_command(locked, root, deviations, state)}{options}"
    notes, wrong = _journal(locked, root)
    if as_json:
        if wrong is not None:
            raise wrong
        found = {"plan": locked.digest, "run": str(root), "runner": worker, "sweeps": state.sweeps}
        found["arms"] = [asdict(arm) | {"finished": arm.finished} for arm in state.arms]
        found["imported"], found["begun"] = state.imported, state.begun
        found |= {"extensions": [asdict(one) for one in state.extensions], "evaluations": [asdict(one) for one in sets]}
        typer.echo(json.dumps(found | {"notes": notes, "next": following}))
        return
    echo(f"plan     {locked.path} (locked {locked.lock.locked_at}, {locked.digest[:12]})")
    echo(f"run      {root}" + ("" if root.is_dir() else " (not begun)"))
    echo(f"runner   {worker or 'none at work'}")
    for family, there in state.sweeps.items():
        echo(f"sweep    {family}: {there}{' (imported)' if f'{family}/start/sweep' in state.imported else ''}")
    for arm in state.arms:
        end = "stopped by a stop rule" if arm.stopped else f"readout: {arm.readout}"
        if arm.imported:
            echo(f"arm      {arm.family}/{arm.arm}: {end} (imported; not trained here)")
            continue
        end += f"; {arm.failed}" if arm.failed else ""
        say(f"arm      {arm.family}/{arm.arm}: {arm.updates_done} of {arm.updates} updates{_kept(arm)}, {end}{_unstepped(arm)}")
    for stage, rollouts in state.begun.items():
        echo(f"begun    {stage}: {rollouts} rollout{'s' * (rollouts != 1)} on disk")
    for one in state.extensions:
        echo(f"extend   {one.family}/{one.arm}: {_extension(one, state.arms[0].updates)}")
        for update, figures in one.figures.items():
            if figures:
                echo(f"check    {one.family}/{one.arm}@{update}: {one.checks[update]}")
            for line in _packed(figures):
                echo(f"         {line}")
    for one in sets:
        for line in _set(one):
            echo(f"phase 2  {line}")
    for note in notes:
        say(f"note     {note}")
    if wrong is not None:
        raise wrong
    if following.startswith("ablation run --all") and state.imported:  # the verdict says what is missing
        echo(f"next     ablation import --stage STAGE --arm ARM{options} FILE (`ablation verdict` says what is missing)")
        return
    echo(f"next     {following}")


def _journal(locked: LockedPlan, root: Path) -> tuple[list[str], IntegrityError | None]:
    """(what is to be said of the journal's times and end, what of the run folder does not fit it)."""
    from ablation.errors import IntegrityError
    from ablation.rollouts.attempts import attempts_of
    from ablation.rollouts.journal_chain import check_journal, clock_note

    try:
        found = check_journal(root, locked.digest)
    except IntegrityError as error:
        return [], error
    attempts = attempts_of(root, locked.path, locked.digest, found.chain)
    return [*found.notes, *clock_note(found, locked.lock.locked_at), *attempts.lines()], None


def _kept(one: ArmState) -> str:
    if not one.without_checkpoint:
        return ""
    return (
        " (no checkpoint is here)"
        if one.without_checkpoint == one.updates_done
        else f" ({one.without_checkpoint} without checkpoint)"
    )


def _unstepped(one: ArmState | ExtensionState) -> str:
    return "".join(f"; update {k}: {outcome}" for k, outcome in one.unstepped.items())


def _extension(one: ExtensionState, before: int) -> str:
    """`before`: updates that every arm has without an extension."""
    if one.updates_done == before and not one.stopped:
        return f"not begun (up to update {one.updates}, checks after {', '.join(map(str, one.checks)) or 'none'})"
    checks = ", ".join(f"{update} {label}" for update, label in one.checks.items())
    end = "" if one.paused_after is None else f"; paused by the check after update {one.paused_after}"
    end = "; stopped by a stop rule" if one.stopped else end
    return f"update {one.updates_done} of {one.updates}, checks: {checks}{end}{_unstepped(one)}"


def _packed(figures: list[str], width: int = 100) -> list[str]:
    """The figures side by side, on as few lines of at most `width` characters as hold them in their order."""
    lines: list[str] = []
    for one in figures:
        if lines and len(lines[-1]) + len(one) + 2 <= width:
            lines[-1] += f", {one}"
        else:
            lines.append(one)
    return lines


def _set(one: SetState) -> list[str]:
    """A line for each comparison on the set, or one that says that there is none."""
    from ablation.rollouts.comparisons import in_words

    name = in_words(one.name)
    if not one.comparisons:
        opened = f"; deviation {one.opened} opens it" if one.opened is not None else ""
        return [f"{name}: not begun{opened}"]
    lines = []
    for found in one.comparisons:
        how = f"taken over from {found.reused}" if found.reused else found.reference
        line = f"{name}: {found.subject}: start: {how}, subject: {found.rollouts}"
        if found.correct is not None:
            line += f"; correct {found.correct['subject']}, the start {found.correct['reference']}"
        line += "; DRIFT" if found.drifted else ""
        line += {"no": "", "sealed": "; blinded read: sealed", "unsealed": "; blinded read: unsealed"}.get(found.read or "no", "")
        lines.append(line + (f" (deviation {found.deviation})" if found.deviation is not None else ""))
    return lines
