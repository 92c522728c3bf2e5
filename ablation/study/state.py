"""How far a run is, read from its folder alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ablation.errors import IntegrityError
from ablation.files import parse_json
from ablation.plan.deviations import Deviation, opened_by, pause_gate
from ablation.plan.extension import FIRST_STABLE, extension_family
from ablation.plan.model import Plan
from ablation.plan.runs import families_of, planned_runs
from ablation.rollouts.folder import RunFolder
from ablation.rollouts.imported import is_imported
from ablation.rollouts.inflight import rollouts_on_disk
from ablation.rollouts.journal_chain import read_journal
from ablation.rollouts.store import stage_info, stage_is_begun, stage_is_complete
from ablation.study.updates import STEPPED


@dataclass(frozen=True)
class ArmState:
    """One arm in one family."""

    family: str
    arm: str
    updates_done: int
    updates: int
    readout: str  # "no" | "partly" | "yes"
    stopped: bool
    unstepped: dict[int, str] = field(default_factory=dict)
    """Update -> its outcome, where it took no step."""
    without_checkpoint: int = 0
    """Of `updates_done`, those whose checkpoint is not in the folder: a record keeps none."""
    imported: bool = False
    """The readout was sampled elsewhere."""
    failed: str | None = None
    """What became of the newest run of the arm's own command, in words, if nothing of it could be taken."""

    @property
    def finished(self) -> bool:
        return self.readout == "yes" or self.stopped


@dataclass(frozen=True)
class ExtensionState:
    """The extension of one arm."""

    family: str
    arm: str
    updates_done: int
    """Counted from the arm's first one."""
    updates: int
    """The last one that the plan allows."""
    checks: dict[int, str]
    """Check -> its label, or "no" or "partly"."""
    paused_after: int | None
    """The check that pauses it now, with no deviation to let it go on."""
    stopped: bool
    unstepped: dict[int, str] = field(default_factory=dict)
    figures: dict[int, list[str]] = field(default_factory=dict)
    """Check -> for each of its rules the number and the limit."""


@dataclass(frozen=True)
class RunState:
    """All that a run has to show: what the plan asks for, and whatever else was begun."""

    root: Path
    sweeps: dict[str, str]
    arms: list[ArmState]
    extensions: list[ExtensionState] = field(default_factory=list)
    """Of every arm that the plan names for it, and of every other one that has been extended."""
    imported: list[str] = field(default_factory=list)
    """`family/arm/stage` of every stage that was sampled elsewhere."""
    begun: dict[str, int] = field(default_factory=dict)
    """Stage that is not complete -> its rollouts on disk, in parts or in flight."""


def _presence(folder: Path) -> str:
    if stage_is_complete(folder):
        return "yes"
    return "partly" if stage_is_begun(folder) else "no"


def _on_disk(folder: Path) -> int:
    """Rollouts of a stage that is not complete; none where a part cannot be read, which is the runner's to refuse."""
    try:
        return rollouts_on_disk(folder)
    except IntegrityError:
        return 0


def run_state(plan: Plan, root: Path, deviations: Sequence[Deviation] = ()) -> RunState:
    """The state of the run of `plan` in `root`, under the plan's `deviations`; the folder need not exist."""
    run = RunFolder(root)
    wanted = planned_runs(plan, also=run.has)
    events = read_journal(run.journal) if any(arm.external for arm in plan.arms.values()) and run.journal.is_file() else []
    arms = [_arm_state(run, plan, family, arm, events) for family, arm in wanted]
    sweeps = {family: _presence(run.sweep(family)) for family in families_of(wanted)}
    folders = [path.parent for path in run.stage_files()]
    imported = [one.relative_to(root).as_posix() for one in folders if _is_imported(one)]
    begun = {folder.relative_to(root).as_posix(): _on_disk(folder) for folder in run.begun_stages()}
    return RunState(root, sweeps, arms, _extensions(run, plan, deviations), imported, begun)


def _arm_state(run: RunFolder, plan: Plan, family: str, arm: str, events: Sequence[dict]) -> ArmState:
    # An arm that is trained as a whole has the last update's checkpoint alone.
    before = plan.training.updates - 1 if plan.arms[arm].trained_as_a_whole else 0
    done = _updates_done(run, family, arm, before, plan.training.updates)
    done = 0 if done == before else done
    kept, readout, imported = done, _presence(run.readout(family, arm)), _is_imported(run.readout(family, arm))
    if readout == "yes" and not imported:  # it was sampled after the last update, so each that was audited was trained
        while done < plan.training.updates and run.audit(family, arm, done + 1).is_file():
            done += 1
    return ArmState(
        family,
        arm,
        done,
        plan.training.updates,
        readout,
        run.stopped(family, arm).is_file(),
        _unstepped(run, family, arm, range(1, done + 1)),
        done - kept,
        imported,
        _failed_command(events, f"{family}/{arm}"),
    )


def _failed_command(events: Sequence[dict], arm: str) -> str | None:
    """What the journal tells of the newest run of the arm's command, if the update that it was for was not trained after it."""
    found = None
    for event in events:
        if event.get("arm") == arm and event["event"] == "command_ended":
            well = event.get("exit_code") == 0
            what = "ended well, but what it left could not be taken" if well else event.get("ended")
            found = f"update {event.get('update')}: the command {what} (see {event.get('log')})"
        elif event.get("arm") == arm and event["event"] in ("command_started", "update_trained"):
            found = None
    return found


def _is_imported(folder: Path) -> bool:
    """Whether there is such a stage, and it was sampled elsewhere. One that cannot be read is the verdict's to refuse."""
    try:
        return stage_is_complete(folder) and is_imported(stage_info(folder))
    except IntegrityError:
        return False


def _extensions(run: RunFolder, plan: Plan, deviations: Sequence[Deviation]) -> list[ExtensionState]:
    extension, own = plan.extension, plan.training.updates
    if extension is None:
        return []
    family = extension_family(plan)
    named = [] if extension.arms == FIRST_STABLE else extension.arms
    found = []
    for arm in plan.arms:
        if arm not in named and not run.update(family, arm, own + 1).is_dir():
            continue
        done = _updates_done(run, family, arm, own, extension.updates)
        records = {k: _read(run.check_result(family, arm, k)) for k in extension.checks}
        pausing = [k for k in extension.checks if k <= done and (records[k] or {}).get("pauses") is not None]
        at = next((k for k in pausing if opened_by(deviations, pause_gate(arm, k)) is None), None)
        checks = {k: record.get("label") if record else _presence(run.check(family, arm, k)) for k, record in records.items()}
        stopped, unstepped = run.extension_stopped(family, arm).is_file(), _unstepped(run, family, arm, range(own + 1, done + 1))
        figures = {k: _figures(record) for k, record in records.items()}
        found.append(ExtensionState(family, arm, done, extension.updates, checks, at, stopped, unstepped, figures))
    return found


def _figures(record: dict | None) -> list[str]:
    """Of each rule of a check; none of a record that is not one of a check, which the audit names."""
    try:
        return [_figure(rule) for rule in (record or {}).get("rules", [])]
    except (AttributeError, TypeError, ValueError):
        return []


def _figure(rule: dict) -> str:
    """A rule of a check: `clean_lost +2 (fires at <= -7)`."""
    value = rule.get("value")
    shown = "no figure" if value is None else f"{value:+d}" if isinstance(value, int) else f"{value:+z.3f}"
    return f"{rule.get('name')} {shown} (fires at {rule.get('op')} {rule.get('limit')})"


def _updates_done(run: RunFolder, family: str, arm: str, first: int, last: int) -> int:
    """How many updates have a checkpoint, of those after `first` up to `last`, `first` itself counted as done."""
    done = first
    while done < last and (run.checkpoint(family, arm, done + 1) / "complete.json").is_file():
        done += 1
    return done


def _unstepped(run: RunFolder, family: str, arm: str, updates: range) -> dict[int, str]:
    outcomes = {}
    for k in updates:
        audit = _read(run.audit(family, arm, k)) or {}
        outcomes[k] = audit.get("step", {}).get("outcome", STEPPED)  # an earlier version of this program named none
    return {k: outcome for k, outcome in outcomes.items() if outcome != STEPPED}


def _read(path: Path) -> dict | None:
    """The JSON object in `path`; None if there is none."""
    try:
        content = parse_json(path.read_bytes())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
