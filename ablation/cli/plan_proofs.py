"""`ablation plan deviate | sign | timestamp | export`, and what `plan verify` says beyond the lock."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablation.cli.machine_options import Backend

if TYPE_CHECKING:
    from ablation.plan.deviations import Deviation
    from ablation.plan.load import LoadedPlan
    from ablation.plan.lock import LockedPlan
    from ablation.plan.proofs import Proof
    from ablation.rollouts.attempts import Attempts
    from ablation.rollouts.journal_chain import JournalState

PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="The locked plan, for instance plans/my-study.yaml.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout; everything else goes to stderr.")]
RunFolderOption = Annotated[Path | None, typer.Option("--run", help="The run folder. Left out: runs/NAME.")]


def register(app: typer.Typer) -> None:
    """Add this module's commands to `ablation plan`."""
    for command in (deviate, sign, timestamp, export):
        app.command()(command)


def deviate(
    file: PlanFile,
    reason: Annotated[str, typer.Option("--reason", help="What is done otherwise than the plan says, and why.")],
    seen: Annotated[str, typer.Option("--seen", help="What had been seen by now: nothing, progress or results.")],
    opens: Annotated[
        list[str] | None,
        typer.Option(
            "--opens",
            metavar="GATE",
            help="A gate that it opens: replication, extension, extension-pause:ARM@UPDATE, engine, held-out, never-used, "
            "selection, release, same-day, blind-rater:SET/ARM@UPDATES/RATER.",
        ),
    ] = None,
    run: RunFolderOption = None,
    policy: Backend = None,
    as_json: Json = False,
) -> None:
    """Write down a deviation from a locked plan, for good. Every label that is computed later shows it.

    Refused (exit 4) if more had been seen than --seen says.
    """
    from ablation.errors import GateError
    from ablation.plan.deviations import deviations_path, record_deviation
    from ablation.plan.lock import verify_lock
    from ablation.rollouts.blind_record import check_leaving
    from ablation.rollouts.folder import RunFolder
    from ablation.rollouts.journal_chain import check_journal
    from ablation.rollouts.seen import check_lock_copy, check_seen, deviations_of_run
    from ablation.study.run_folder import chosen_root

    locked = verify_lock(file)
    root, _ = chosen_root(locked, policy, run)
    check_lock_copy(root, locked)
    state = check_journal(root, locked.digest)
    deviations_of_run(root, locked, state)
    check_seen(seen, root, state)
    for other in _other_runs(locked, root):
        check_seen(seen, other, check_journal(other, locked.digest))
    if (root / "plan.yaml").is_file():  # else it is elsewhere, and who began is not known here
        check_leaving(RunFolder(root), opens or (), state.events)
    begun = state.head if state.events else None
    whose = {"folder": root.resolve().name, "first": state.chain.digests[0]} if state.events else None
    one = record_deviation(locked, reason=reason, seen=seen, opens=opens or (), journal=begun, run=whose)
    note = None
    if (root / "plan.yaml").is_file():
        try:
            _take_up(root, locked)
        except GateError as error:  # its runner will: before the next arm
            note = f"{error.message}; it takes the deviation up before its next arm"
    path = deviations_path(file)
    result = one.as_json() | {"file": str(path), "run": str(root) if root.is_dir() else None}
    _emit(as_json, result, f"{path}: {one.in_words()}")
    if note:
        typer.echo(note, err=True)


def sign(
    file: PlanFile,
    key: Annotated[Path, typer.Option("--key", help="SSH key: the private one, or the public one of a key in the agent.")],
    as_json: Json = False,
) -> None:
    """Sign the lock with an SSH key: PLAN's .lock.sig, in the namespace `ablation-lock`."""
    from ablation.plan.lock import verify_lock
    from ablation.plan.signature import sign_lock

    path = sign_lock(verify_lock(file).lock, key)
    text = f"{path} written; a reviewer checks it with `ablation plan verify {file} --allowed-signers FILE`"
    _emit(as_json, {"plan": str(file), "signature": str(path)}, text)


def timestamp(
    file: PlanFile,
    url: Annotated[str | None, typer.Option("--url", help="An RFC 3161 timestamp authority.")] = None,
    request_only: Annotated[
        bool, typer.Option("--request-only", help="Write the request (.lock.tsq) for somebody who has a network.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Have an authority timestamp the lock: PLAN's .lock.tsr. Exit 6: it could not be reached, and the timestamp is owed."""
    from ablation.errors import UsageError
    from ablation.plan.lock import verify_lock
    from ablation.plan.timestamp import ask_for_timestamp, response_path, write_request

    if request_only == (url is not None):
        raise UsageError("say which: --url URL or --request-only")
    lock = verify_lock(file).lock
    if url is not None:
        path = ask_for_timestamp(lock, url)
        text = f"{path} written; a reviewer checks it with `ablation plan verify {file} --tsa-ca FILE`"
    else:
        path = write_request(lock)
        text = f"{path} written; keep the authority's response as {response_path(lock)}. Until then the timestamp is owed."
    _emit(as_json, {"plan": str(file), "written": str(path), "owed": url is None}, text)


def export(
    file: PlanFile,
    form: Annotated[str, typer.Option("--format", help="prml (one manifest a rule) or in-toto (one statement).")],
    out: Annotated[Path, typer.Option("--out", help="The folder to write to.")],
    as_json: Json = False,
) -> None:
    """Write the lock in a format that other tools read."""
    from ablation.plan.export import export as write_export
    from ablation.plan.lock import verify_lock

    written, left_out = write_export(verify_lock(file), form, out)
    for line in left_out:
        typer.echo(f"left out: {line}", err=True)
    _emit(as_json, {"written": [str(path) for path in written], "left_out": left_out}, "\n".join(str(path) for path in written))


@dataclass(frozen=True)
class Proved:
    """What `plan verify` found beyond the lock; nothing in it contradicts the lock."""

    proofs: list[Proof]
    deviations: list[Deviation]
    run: Path
    journal: JournalState
    attempts: Attempts

    def lines(self) -> list[str]:
        from ablation.report.safe import clean

        journal = f"journal: {self.journal_in_words()}"
        notes, deviations = self.journal.notes, [one.in_words() for one in self.deviations]
        lines = [*(one.in_words() for one in self.proofs), journal, *notes, *self.attempts.lines(), *deviations]
        return [clean(" ".join(line.splitlines())) for line in lines]

    def journal_in_words(self) -> str:
        """What the run's journal is, without its notes."""
        state = self.journal
        if state.events:
            return f"{self.run}: {len(state.events)} events, chain whole, head {state.head}"
        return f"{self.run} has no event: nothing has run there"

    def as_json(self) -> dict[str, Any]:
        return {
            "proofs": [one.as_json() for one in self.proofs],
            "deviations": [one.as_json() for one in self.deviations],
            "run": str(self.run),
            "journal": self.journal.as_json() | {"notes": list(self.journal.notes)},
        } | self.attempts.as_json()


def prove(
    locked: LockedPlan,
    run: Path | None,
    journal_head: str | None,
    allowed_signers: Path | None,
    tsa_ca: Path | None,
    policy: str | None = None,
) -> Proved:
    """Check every proof beside the lock, the run's journal and the deviations.

    Raises `IntegrityError` if a proof contradicts the lock, or journal or deviations were touched.
    """
    from ablation.chain import Head
    from ablation.errors import IntegrityError, UsageError
    from ablation.plan.gitproof import check_git
    from ablation.plan.proofs import FAILED
    from ablation.plan.signature import check_signature
    from ablation.plan.timestamp import check_timestamp
    from ablation.rollouts.attempts import attempts_of
    from ablation.rollouts.journal_chain import check_journal
    from ablation.rollouts.seen import check_lock_copy, deviations_of_run
    from ablation.study.run_folder import chosen_root

    root, _ = chosen_root(locked, policy, _run_beside(locked.path) if run is None else run)
    if run is not None and not run.is_dir():
        raise UsageError(f"{run}: there is no such run folder")
    check_lock_copy(root, locked)
    state = check_journal(root, locked.digest, Head.parse(journal_head) if journal_head else None)
    deviations = deviations_of_run(root, locked, state)
    proofs = [check_signature(locked.lock, allowed_signers)]
    proofs += check_git(locked.lock, state.began, allowed_signers)
    proofs.append(check_timestamp(locked.lock, state.began, tsa_ca))
    failed = [one for one in proofs if one.state == FAILED]
    if failed:
        raise IntegrityError(
            "\n".join(f"{locked.path}: {one.kind}: {one.says}" for one in failed),
            hint="Plan and lock fit each other, but are not what was signed, committed or dated: take them back from there.",
        )
    return Proved(proofs, deviations, root, state, attempts_of(root, locked.path, locked.digest, state.chain))


def _run_beside(plan: Path) -> Path | None:
    """The run folder that `plan` is the copy in, if it is one."""
    from ablation.rollouts.folder import RunFolder

    run = RunFolder(plan.parent)
    return run.root if plan.name == run.plan.name and run.journal.is_file() else None


def deviations_beside(loaded: LoadedPlan) -> list[dict[str, Any]]:
    """The deviations in the file beside a plan, for `plan show`."""
    from ablation.plan.deviations import deviations_path, read_deviations
    from ablation.plan.lock import read_lock

    path = deviations_path(loaded.path)  # of the locked plan, whatever was done to the file since
    return [one.as_json() for one in read_deviations(path, read_lock(loaded.path).digest)] if path.exists() else []


def _other_runs(locked: LockedPlan, root: Path) -> list[Path]:
    """Runs of the plan with its other backends, at their usual places: what is seen there is seen."""
    from ablation.plan.choose import lock_path
    from ablation.rollouts.folder import RunFolder
    from ablation.study.chosen import folder_of_backend
    from ablation.study.run_folder import run_root

    allowed = locked.plan.policy.backends
    places = [folder_of_backend(run_root(locked, None), allowed, one) for one in allowed]
    lock = lock_path(locked.path).read_bytes()
    of_plan = [one for one in places if RunFolder(one).lock.is_file() and RunFolder(one).lock.read_bytes() == lock]
    return [one for one in of_plan if one.resolve() != root.resolve()]


def _take_up(root: Path, locked: LockedPlan) -> None:
    from ablation.rollouts.folder import RunFolder
    from ablation.study.deviations import take_up_deviations
    from ablation.study.journal import Journal
    from ablation.study.runlock import exclusive

    with exclusive(root):
        run = RunFolder(root)
        journal = Journal(run.journal, locked.digest)
        try:
            take_up_deviations(run, locked, journal)
        finally:
            journal.close()


def _emit(as_json: bool, value: dict[str, Any], text: str) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) if as_json else text)
