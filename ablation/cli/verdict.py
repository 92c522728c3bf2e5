"""`ablation verdict`: what the plan's rules say of a run, or of reported figures."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ablation.cli.fit import echo
from ablation.cli.machine_options import Backend
from ablation.cli.pointer import HELP as AT_HELP
from ablation.cli.pointer import print_at
from ablation.cli.run_folder import PlanOption, RunOption, RunPath, find_run, named_run

if TYPE_CHECKING:
    from ablation.plan.lock import LockedPlan
    from ablation.plan.model import Plan
    from ablation.verdict.model import Verdict
    from ablation.verdict.run import Locked


def verdict(
    path: RunPath = None,
    plan: PlanOption = None,
    run: RunOption = None,
    policy: Backend = None,
    measures: Path = typer.Option(None, "--measures", help="Judge the reported figures in this file, and no rollouts."),
    regrade: bool = typer.Option(False, "--regrade", help="Grade every answer here, whatever grades are stored."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout; everything else on stderr."),
    expect: str = typer.Option(None, "--expect", metavar="LABEL", help="Exit with 10 unless the verdict has this label."),
    at: list[str] = typer.Option(None, "--at", metavar="PLACE", help=AT_HELP),
) -> None:
    """Apply the plan's rules: readouts, damage, replication and labels, with every number and its limit.

    Exit 6: data are missing or undecided, so there is no verdict; the message says what to run.
    """
    from ablation.errors import ExitCode, UsageError
    from ablation.rollouts.folder import RunFolder
    from ablation.verdict.stored import Stored, check_stored

    differs = None
    run = named_run(path, run, plan if measures is None else measures)
    if measures is not None and (run is not None or policy is not None):
        raise UsageError("--measures judges reported figures, and --run or --policy a run folder; say one of them")
    if measures is not None and regrade:
        raise UsageError("--regrade grades rollouts, and there are none behind --measures")
    if measures is not None:
        from ablation.verdict.reported import judge_reported

        locked, note = plan_of_measures(plan)
        judged, found = locked.plan, judge_reported(measures, locked)
        extra: dict[str, Any] = {"measures": str(measures)}
        said = [note] if note else []
    else:
        found, of_run, root, said = judge_folder(plan, run, policy, regrade)
        judged = of_run.plan
        own = found.as_json()
        stored = Stored() if regrade else check_stored(RunFolder(root).verdict, own)
        differs = stored.wrong
        # Somebody else's folder is evidence as it is, and grades that were asked for again are not those of the run.
        kept = regrade or differs is not None or (plan is None and run is not None)
        unwritten = stored.note if kept else _write(root, own)
        extra = {"run": str(root), "written": not (kept or unwritten)}
        said += [unwritten] if unwritten else []
    if expect is not None:
        _check_label(expect, judged)
    code, message = _outcome(found, expect, judged)
    if differs:
        code, message = ExitCode.INTEGRITY, [differs, *message]
    content = found.as_json() | extra | {"exit_code": int(code), "warnings": said} if at or as_json else {}
    if at:
        print_at(content, at)
    elif as_json:
        typer.echo(json.dumps(content, ensure_ascii=False, allow_nan=False))
    else:
        _print(found, judged)
        if measures is None and sys.stdout.isatty():
            echo(f"To read on: `ablation report {root}` writes a page, `ablation view {root}` opens the rollouts in a browser.")
    for line in [*said, *message]:
        echo(line, err=True)
    # a raised error would put a second object on stdout
    raise typer.Exit(int(code))


def _check_label(label: str, plan: Plan) -> None:
    from ablation.errors import UsageError
    from ablation.plan.deviations import bare
    from ablation.plan.section import did_you_mean
    from ablation.verdict.model import section_labels

    known = list(dict.fromkeys(one for labels in section_labels(plan).values() for one in labels))
    if bare(label) not in known:
        raise UsageError(
            f"--expect: there is no label `{label}`{did_you_mean(label, known)}", hint=f"Labels: {', '.join(known)}."
        )


def plan_of_measures(option: Path | None) -> tuple[Locked, str | None]:
    """The plan whose rules are applied; one that is not locked is allowed here, because the figures are public already."""
    from ablation.plan.choose import choose_plan, lock_path
    from ablation.plan.load import load_plan
    from ablation.plan.lock import verify_lock

    path = choose_plan(option)
    if lock_path(path).exists():
        return verify_lock(path), None
    loaded = load_plan(path)
    return loaded, f"note: {path} is not locked, so nothing shows that its rules are older than these figures"


def judge_folder(
    plan: Path | None, run: Path | None, policy: str | None, regrade: bool
) -> tuple[Verdict, LockedPlan, Path, list[str]]:
    """The verdict on a run folder, its locked plan, the folder, and what to say on stderr."""
    from ablation.power.judged import judge_whole

    locked, root, options = find_run(plan, run, policy)
    notes = [f"note: {warning}" for warning in locked.warnings]
    return judge_whole(root, locked, options, regrade=regrade), locked, root, notes


def _write(root: Path, own: dict[str, Any]) -> str | None:
    """Keep the verdict in the run folder; a sentence if that could not be done, which is no error."""
    from ablation.files import DiskError, json_bytes, write_bytes
    from ablation.rollouts.folder import RunFolder

    path = RunFolder(root).verdict
    if not root.is_dir():
        return f"note: {root} does not exist, so {path.name} was not written"
    data = json_bytes(own)
    try:
        if not path.is_file() or path.read_bytes() != data:
            write_bytes(path, data)
    except (DiskError, OSError) as error:
        return f"note: {path.name} was not written: {error}"
    return None


def _outcome(found: Verdict, expect: str | None, plan: Plan) -> tuple[int, list[str]]:
    """(exit code, what to say about it)."""
    from ablation.errors import ExitCode
    from ablation.plan.deviations import bare
    from ablation.verdict.model import INCOMPLETE, UNDECIDED, section_labels

    wrong = [one.text for section in found.sections.values() for of in (section, *section.others) for one in of.wrong]
    if wrong:
        return ExitCode.INTEGRITY, [*dict.fromkeys(wrong)]
    wanted, labels = bare(expect or ""), found.labels()
    able = [name for name, known in section_labels(plan).items() if wanted in known]
    named = [name for name in able if name in labels]
    for name in named:  # whoever expects a bare label means it under any deviation
        shown = found.shown(labels[name]) if name == "replication" else found.shown_section(found.sections[name])
        if expect in (labels[name], shown):
            return ExitCode.DONE, []
    if able and not named:
        return ExitCode.LABEL_MISMATCH, [f"expected {expect}, found not in this plan"]
    section = next(iter(named), "replication")
    label = labels[section]
    shown = found.shown(label) if section == "replication" else found.shown_section(found.sections[section])
    missing = found.missing if section == "replication" else found.sections[section].missing
    open_label = label in (INCOMPLETE, UNDECIDED)
    if expect is not None and not open_label:
        return ExitCode.LABEL_MISMATCH, [f"expected {expect}, found {shown}"]
    if not (missing or open_label):
        return ExitCode.DONE, []
    expected = f" (expected {expect})" if expect else ""
    what = f"no verdict{expected}" if open_label else "a claim lacks a run"
    if not missing:
        return ExitCode.INCOMPLETE, [f"{what}: the label is {shown}"]
    first, more = missing[0], len(missing) - 1
    others = f", and {more} more" if more else ""
    command = found.next_command if section == "replication" and found.next_command else first.command
    return ExitCode.INCOMPLETE, [f"{what}: {first.what}{others}", f"Next: {command}"]


def _print(found: Verdict, plan: Plan) -> None:
    from ablation.report.terminal import plain_console
    from ablation.report.verdict_tables import print_verdict

    console = plain_console()
    if not console.is_terminal:
        console = plain_console(width=80)
    print_verdict(found, plan, console)
