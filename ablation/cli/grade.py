"""`ablation grade`: grades of a run's rollouts, kept beside them."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import typer

from ablation.cli.complete import arms_of_run
from ablation.cli.machine_options import Backend
from ablation.cli.run_folder import PlanOption, RunOption, RunPath, find_run, named_run
from ablation.cli.say import say
from ablation.rollouts.folder import START

if TYPE_CHECKING:
    from ablation.study.grading import StageGrades


def grade(
    path: RunPath = None,
    plan: PlanOption = None,
    run: RunOption = None,
    policy: Backend = None,
    arm: list[str] = typer.Option(
        None, "--arm", help="Only this arm (`start`: sweeps and references); may be repeated.", autocompletion=arms_of_run
    ),
    stage: str = typer.Option(
        None, "--stage", help="Only these stages: sweep, readout, update, check, one like update-2, or a set."
    ),
    again: bool = typer.Option(False, "--again", help="Grade all of it again; without it only what is not graded yet."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """Grade what has no grade yet, and what a grader failed on. A grader's failure is never a wrong answer.

    Exit 6: the grader failed on some rollouts; repair what made it fail and run the command again.
    """
    from ablation.blind.closed import closed_reads, closing
    from ablation.errors import ExitCode, UsageError
    from ablation.files import remove_partial, write_json
    from ablation.measures.measure import measure
    from ablation.problems.problem import load_problems
    from ablation.rollouts.folder import RunFolder, measures_file
    from ablation.rollouts.journal_chain import check_journal
    from ablation.rollouts.outcomes import outcomes
    from ablation.rollouts.store import read_stage
    from ablation.study.grading import WRITTEN, grade_stage, graded_stages, problems_file
    from ablation.study.journal import Journal
    from ablation.study.runlock import exclusive

    locked, root, _ = find_run(plan, named_run(path, run, plan), policy)
    if not root.is_dir():
        raise UsageError(f"{root}: there is no such run folder")
    folder = RunFolder(root)
    with exclusive(root):
        check_journal(root, locked.digest)
        chosen = [one for one in graded_stages(folder) if _wanted(one.relative_to(root).parts, arm or [], stage)]
        if not chosen:
            raise UsageError(f"{root}: there is no complete stage{' of that name' if arm or stage else ''}")
        read = cache(load_problems)  # one file serves many stages
        remove_partial(root)
        journal, done = Journal(folder.journal, locked.digest), []
        unread = closed_reads(folder, locked.plan, lambda: journal.events)
        try:
            for one in chosen:
                problems = read(problems_file(folder, one))
                found = grade_stage(folder, one, problems, journal, again=again)
                if found.changed and closing(found.stage, unread):  # each line has what a model answered
                    told = f"grades that changed: {len(found.changed)}; which ones is not said before the blinded read is opened"
                    found = replace(found, changed=[told])
                done.append(found)
                if not as_json:
                    _tell(found)
                if found.done == WRITTEN and not found.errors and measures_file(one).is_file():
                    own = outcomes(read_stage(one), problems, locked.plan.loops, found.grades)
                    write_json(measures_file(one), measure(own))
        finally:
            journal.close()
    code = ExitCode.INCOMPLETE if any(one.errors for one in done) else ExitCode.DONE
    if as_json:
        stages = {
            one.stage: {"done": one.done, "counts": one.counts, "changed": one.changed, "errors": one.errors} for one in done
        }
        typer.echo(json.dumps({"run": str(root), "stages": stages, "exit_code": int(code)}, ensure_ascii=False))
    elif code:
        failed = sum(len(one.errors) for one in done)
        say(f"the grader failed on {failed} rollouts: no score; the same command grades them again", err=True)
    raise typer.Exit(int(code))


def _wanted(parts: tuple[str, ...], arms: list[str], stage: str | None) -> bool:
    """Whether the stage FAMILY/ARM/STAGE was asked for, or evaluations/SET/ARM@UPDATES/SIDE."""
    if parts[0] == "evaluations":
        arm, kinds = parts[2].rpartition("@")[0] if parts[3] == "subject" else START, (parts[1],)
    else:
        arm, kinds = parts[1], (parts[2], parts[2].rpartition("-")[0])
    return (not arms or arm in arms) and (stage is None or stage in kinds)


def _tell(found: StageGrades) -> None:
    counts = ", ".join(f"{count} {status.replace('_', ' ')}" for status, count in sorted(found.counts.items()))
    say(f"{found.stage}: {found.done}: {len(found.grades)} rollouts: {counts}")
    for line in found.changed:
        say(f"    {line}")
    if found.errors:
        shown = ", ".join(found.errors[:5]) + (f" and {len(found.errors) - 5} more" if len(found.errors) > 5 else "")
        say(f"    the grader failed on {shown}")
