"""`ablation plan review`: everything that a reviewer must know of a plan, in a terminal or as one HTML file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablation.cli.machine_options import Backend
from ablation.cli.plan_power import short_power
from ablation.cli.plan_proofs import prove

if TYPE_CHECKING:
    from ablation.plan.load import LoadedPlan


def review(
    file: Annotated[Path, typer.Argument(metavar="PLAN", help="The plan file, for instance plans/my-study.yaml.")],
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the page to FILE, which needs no other.")
    ] = None,
    run: Annotated[Path | None, typer.Option("--run", help="The run folder. Left out: runs/NAME.")] = None,
    policy: Backend = None,
    allowed_signers: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Whose SSH signatures count (`man ssh-keygen`, ALLOWED SIGNERS).")
    ] = None,
    tsa_ca: Annotated[Path | None, typer.Option(metavar="FILE", help="PEM root of the timestamp's authority.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout; everything else goes to stderr.")] = False,
) -> None:
    """For a reviewer: what would make the label REPLICATED, arms, rules, schedule, cost, lock, luck, and what is left open.

    A plan that is not the locked one, or whose proofs contradict its lock, is shown as refused, with exit code 3.
    """
    from ablation.errors import ExitCode
    from ablation.files import write_bytes
    from ablation.plan.load import load_plan
    from ablation.report.plan_page import plan_summary, state_of_lock
    from ablation.report.plan_review import review as reviewed

    loaded = load_plan(file)
    lock = state_of_lock(file)
    proved = _proved(loaded, lock, run, policy, allowed_signers, tsa_ca)
    content = reviewed(loaded, plan_summary(loaded, lock), short_power(loaded), proved)
    if html is not None:
        from ablation.report.plan_review_html import review_html

        write_bytes(html, review_html(content).encode())
        typer.echo(f"{html} written", err=as_json)
    if as_json:
        typer.echo(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False))
    elif html is None:
        from ablation.report.plan_review_terminal import review_page
        from ablation.report.terminal import print_page

        print_page(review_page(content))
    if content["refused"]:
        typer.echo(f"{file}: refused: see the page", err=True)
        raise typer.Exit(int(ExitCode.INTEGRITY))


def _proved(
    loaded: LoadedPlan,
    lock: dict[str, Any],
    run: Path | None,
    policy: str | None,
    allowed_signers: Path | None,
    tsa_ca: Path | None,
) -> dict[str, Any]:
    """Proofs, journal and deviations of a locked plan; what contradicts the lock is told, not raised."""
    from ablation.errors import IntegrityError
    from ablation.plan.lock import verify_lock

    none: dict[str, Any] = {"proofs": [], "journal": None, "deviations": [], "refused": None}
    if lock["state"] == "not locked":
        return none
    try:
        found = prove(verify_lock(loaded.path, resources=True), run, None, allowed_signers, tsa_ca, policy)
    except IntegrityError as error:
        return none | {"refused": "\n".join(error.lines())}
    content = found.as_json()
    journal = "\n".join([found.journal_in_words(), *found.journal.notes, *found.attempts.lines()])
    return none | {"proofs": content["proofs"], "journal": journal, "deviations": content["deviations"]}
