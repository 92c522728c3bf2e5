"""`ablation report`: a run as a report that an outsider can read, and where each of its numbers is from."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablation.cli.machine_options import Backend
from ablation.cli.pointer import HELP as AT_HELP
from ablation.cli.pointer import print_at
from ablation.cli.run_folder import PlanOption, RunOption, RunPath, find_run, named_run, printed_options

if TYPE_CHECKING:
    from ablation.plan.lock import LockedPlan
    from ablation.plan.proofs import Proof
    from ablation.report.post.study import Study
    from ablation.verdict.locked import Locked


def report(
    path: RunPath = None,
    plan: PlanOption = None,
    run: RunOption = None,
    policy: Backend = None,
    measures: Annotated[
        Path | None, typer.Option("--measures", metavar="FILE", help="A report of reported figures, without rollouts.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FOLDER", help="Where to. Left out: RUN/report.")] = None,
    no_figures: Annotated[bool, typer.Option("--no-figures", help="Tables alone.")] = False,
    allowed_signers: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Whose SSH signatures count (`man ssh-keygen`, ALLOWED SIGNERS).")
    ] = None,
    tsa_ca: Annotated[Path | None, typer.Option(metavar="FILE", help="PEM root of the timestamp's authority.")] = None,
    at: Annotated[list[str] | None, typer.Option("--at", metavar="PLACE", help=AT_HELP)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout; everything else on stderr.")] = False,
) -> None:
    """Write a report: one HTML file that needs no other, the same as Markdown, tables for LaTeX, figures as SVG and PNG.

    An unfinished run gives a report that says what is missing. Exit 3: something was edited, or done without being allowed.
    """
    from ablation.errors import ExitCode, UsageError
    from ablation.report.post.draw import PACKAGE, Drawer, can_draw

    run = named_run(path, run, plan if measures is None else measures)
    if measures is not None and (run is not None or policy is not None):
        raise UsageError("--measures reports on figures, and RUN or --policy on a run folder; say one of them")
    if measures is not None and out is None and not at:
        raise UsageError("--measures has no run folder to write into", hint="Name a folder with --out.")
    drawn = not (no_figures or at) and can_draw()
    said = (
        [] if drawn or no_figures or at else [f"note: no figures, because {PACKAGE} is not installed: pip install -e '.[report]'"]
    )
    with ExitStack() as stack:
        drawer = stack.enter_context(Drawer()) if drawn else None  # it takes a second to start, so it starts first
        if measures is not None:
            study, locked, wrong = _of_figures(measures, plan)
        else:
            study, locked, wrong = _of_run(run, plan, policy, allowed_signers, tsa_ca)
        if at:
            print_at(study.data(), at)
            return
        from ablation.report.post.build import NO_FIGURES, NOT_WANTED, document
        from ablation.report.post.write import PAGE, report_files, write_report

        made = document(study, locked, drawer, NOT_WANTED if no_figures else NO_FIGURES)
    assert out is not None or study.path is not None
    folder = out if out is not None else study.path / "report"  # type: ignore[operator]
    written = write_report(folder, report_files(made, study.data()))
    code = ExitCode.INTEGRITY if wrong else ExitCode.DONE
    if as_json:
        content: dict[str, Any] = {"folder": str(folder), "page": str(folder / PAGE), "label": made.label.text}
        content |= {"written": [str(path) for path in written], "figures": drawer is not None}
        typer.echo(json.dumps(content | {"warnings": [*said, *wrong], "exit_code": int(code)}, ensure_ascii=False))
    else:
        typer.echo(f"{folder / PAGE} written: {made.label.text}")
    for line in [*said, *wrong]:
        print(line, file=sys.stderr)
    # a raised error would put a second object on stdout
    raise typer.Exit(int(code))


def _of_run(
    run: Path | None, plan: Path | None, policy: str | None, allowed_signers: Path | None, tsa_ca: Path | None
) -> tuple[Study, LockedPlan, list[str]]:
    """(what the report is made of, the plan, what should not be)."""
    from ablation.cli.plan_power import short_power
    from ablation.cli.verdict import judge_folder
    from ablation.errors import UsageError
    from ablation.report.post.study import study_of_run
    from ablation.report.post.traces import Traces
    from ablation.rollouts.folder import RunFolder
    from ablation.rollouts.journal_chain import check_journal
    from ablation.verdict.stored import check_stored

    found, locked, root, _ = judge_folder(plan, run, policy, regrade=False)
    if not root.is_dir():
        options = printed_options(find_run(plan, run, policy)[2], run)
        raise UsageError(f"{root}: there is no such run folder", hint=f"`ablation run --all{options}` makes one.")
    name = shown_path(root)
    journal = check_journal(root, locked.digest)
    wrong = [one.text for section in found.sections.values() for of in (section, *section.others) for one in of.wrong]
    differs = check_stored(RunFolder(root).verdict, found.as_json()).wrong
    study = study_of_run(
        root,
        locked,
        found,
        journal.events,
        Traces(name),
        proofs=_proofs(locked, root, allowed_signers, tsa_ca),
        luck=short_power(locked),  # type: ignore[arg-type]
        plan_file=str(plan) if plan is not None else f"{name}/{RunFolder(root).plan.name}",
        warnings=[differs.replace(str(root), name)] if differs else [],
    )
    return study, locked, [*dict.fromkeys(wrong), *([differs] if differs else [])]


def _of_figures(measures: Path, plan: Path | None) -> tuple[Study, Locked, list[str]]:
    from ablation.cli.plan_power import short_power
    from ablation.cli.verdict import plan_of_measures
    from ablation.report.post.study import study_of_figures
    from ablation.report.post.traces import Traces
    from ablation.verdict.reported import judge_reported

    locked, _ = plan_of_measures(plan)
    found = judge_reported(measures, locked)
    traces = Traces(None, shown_path(measures), shown_path(locked.path))
    lock = getattr(locked, "lock", None)
    study = study_of_figures(
        locked,
        found,
        traces,
        luck=short_power(locked),
        plan_file=shown_path(locked.path),
        lock=lock,  # type: ignore[arg-type]
    )
    return study, locked, []


def shown_path(path: Path) -> str:
    """How a report names a path: seen from here, and nothing of this machine's folders above."""
    if not path.is_absolute():
        return path.as_posix()
    here = Path.cwd()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else path.name


def _proofs(locked: LockedPlan, root: Path, allowed_signers: Path | None, tsa_ca: Path | None) -> list[Proof]:
    """Of the lock; the copy in a run folder has none beside it, so the plan in `plans/` is asked where its lock is the same."""
    from ablation.cli.plan_proofs import prove
    from ablation.plan.lock import verify_lock

    beside = root.resolve().parent.parent / "plans" / locked.lock.content["plan_file"]
    lock = beside.with_suffix(".lock")
    if locked.path.parent == root and lock.is_file() and lock.read_bytes() == locked.lock.path.read_bytes():
        locked = verify_lock(beside)
    return prove(locked, root, None, allowed_signers, tsa_ca).proofs
