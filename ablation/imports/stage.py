"""One stage of a run from files of another program: gates, rows, pairing; only then anything is written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ablation.errors import GateError, IntegrityError, UsageError
from ablation.files import sha256_bytes, sha256_file, sha256_path, write_json
from ablation.imports.files import read_files
from ablation.imports.rows import read_rollouts
from ablation.imports.tokens import FILE, Tokens, tokens_from_file, tokens_from_words
from ablation.imports.wanted import Wanted
from ablation.ledger.ledger import ledger_path, write_mark
from ablation.measures.measure import measure
from ablation.plan.deviations import deviations_path, opened_by, read_deviations
from ablation.plan.locate import locate
from ablation.plan.lock import LockedPlan
from ablation.plan.model import START
from ablation.plan.runs import families_of, planned_runs
from ablation.problems.problem import Problem, load_problems
from ablation.problems.render import TokenIds
from ablation.rollouts.folder import RunFolder, measures_file, part_file
from ablation.rollouts.imported import IMPORTED, absent_measures, import_note, is_imported
from ablation.rollouts.journal_chain import check_journal, read_journal_chain
from ablation.rollouts.marked import use_of
from ablation.rollouts.outcomes import outcomes
from ablation.rollouts.schema import Rollout, StageInfo
from ablation.rollouts.stage import Stage
from ablation.rollouts.store import (
    finish_stage,
    part_info,
    read_stage,
    stage_info,
    stage_is_begun,
    stage_is_complete,
    stage_of,
    stage_parts,
    stage_record,
    write_part,
)
from ablation.study.deviations import take_up_deviations
from ablation.study.extension import run_options
from ablation.study.gates import check_family_gate
from ablation.study.grading import grade_stage
from ablation.study.journal import Journal
from ablation.study.runlock import exclusive
from ablation.study.sampler import Item, stage_items
from ablation.study.schedule import cells_of_update, plan_cells
from ablation.study.session import begin_session, end_session
from ablation.study.workspace import open_run
from ablation.verdict.completeness import check_pairing

STAGES = ("sweep", "readout", "update")


@dataclass(frozen=True)
class Request:
    """What is to be imported, and what the user said of all rows."""

    files: list[Path]
    family: str
    arm: str
    stage: str
    update: int
    tokenizer: Path | None = None
    ids: str | None = None
    effort: str | None = None
    opens: bool | None = None
    by_count: bool = False

    @property
    def name(self) -> str:
        """For instance `main/C/update-1`, as in the journal."""
        return f"{self.family}/{self.arm}/{self.stage}" + (f"-{self.update}" if self.stage == "update" else "")


@dataclass(frozen=True)
class Imported:
    """What was written."""

    info: StageInfo
    folder: Path
    rollouts: int
    tokens: int
    unused: list[str]
    notes: list[str] = field(default_factory=list)


def make_request(locked: LockedPlan, stage: str, arm: str | None, family: str | None, update: int | None, **more) -> Request:
    """The request that the options of a command say. Raises `UsageError` naming the option that is wrong."""
    plan, family = locked.plan, family or locked.plan.main_family
    if stage not in STAGES:
        raise UsageError(f"--stage: found `{stage}`; it must be {', '.join(STAGES)}")
    if family not in plan.families:
        raise UsageError(f"{locked.path}: there is no family `{family}`; its families are {', '.join(plan.families)}")
    if stage == "sweep" and arm not in (None, START):
        raise UsageError(f"--arm: a sweep is of the starting model, so it has no arm; found `{arm}`")
    if stage != "sweep" and arm not in plan.arms:
        found = f"there is no arm `{arm}`" if arm else "say whose this is"
        raise UsageError(f"--arm: {found}; the arms are {', '.join(plan.arms)}")
    if stage != "update" and update is not None:
        raise UsageError("--update goes with --stage update")
    if stage == "update" and (update is None or not 1 <= update <= plan.training.updates):
        raise UsageError(f"--update: say which one, from 1 to {plan.training.updates}")
    number = {"sweep": 0, "readout": plan.training.updates}.get(stage, update or 0)
    return Request(family=family, arm=arm or START, stage=stage, update=number, **more)


def wanted_lines(locked: LockedPlan, request: Request) -> list[str]:
    """One JSON object for each rollout of the stage: problem, effort, index, the plan's seed, and the problem's text."""
    problems = _problems(locked)
    lines = []
    for item in _items(locked, request):
        line = {"problem": item.cell.problem, "effort": item.cell.effort, "index": item.index, "seed": item.seed}
        lines.append(json.dumps(line | {"prompt": problems[item.cell.problem].prompt}, ensure_ascii=False))
    return lines


def import_stage(locked: LockedPlan, root: Path, request: Request) -> Imported:
    """Check everything, then write the stage, its event and its mark; a kill in between is repaired by the same command.

    Raises:
        UsageError: a row, an option or a file is wrong.
        GateError: the plan or the run's own state does not allow this stage now.
        IntegrityError: the run or its problems are not those of the plan, or the rows are not paired with the sweep's.
    """
    problems = _problems(locked)
    _check_gates(locked, root, request)
    rows, unused = read_files(request.files)
    tokens = _tokens(locked, root, request)
    items = _items(locked, request)
    who = (request.family, request.arm, request.stage, request.update)
    wanted = Wanted(locked.plan, problems, items, who, tokens, request.effort, request.opens, request.by_count)
    read = read_rollouts(rows, wanted)
    engine = {
        "name": IMPORTED,
        "source": [path.name for path in request.files],
        "sha256": [sha256_file(path) for path in request.files],
        **read.known,
    }
    info = _info(locked, request, tokens.ids, engine)
    stage = stage_of(info, read.rollouts)
    notes = [*_unclosed(locked, stage), *_pair(root, request, stage)]
    notes += [*_told_before(root, request, engine), *_undecided(locked, request, info)]
    with exclusive(root):
        _write(locked, root, request, info, read.rollouts, problems)
    folder = _folder(RunFolder(root), request)
    return Imported(info, folder, len(stage), int(stage.offsets[-1]), sorted(unused), [import_note(info), *notes])


def grade_imported(locked: LockedPlan, root: Path, folder: Path) -> list[str]:
    """Grade the stage in `folder` and write its measures; what the grader failed on, or a sentence if it cannot grade here."""
    run = RunFolder(root)
    problems = load_problems(run.problems)
    with exclusive(root):
        journal = Journal(run.journal, locked.digest)
        try:
            graded = grade_stage(run, folder, problems, journal)
        except UsageError as error:
            return [f"not graded: {error.message}"]
        finally:
            journal.close()
        if graded.errors:
            return [f"the grader failed on {len(graded.errors)} rollouts, for instance {graded.errors[0]}"]
        write_json(measures_file(folder), measure(outcomes(read_stage(folder), problems, locked.plan.loops, graded.grades)))
    return []


def _items(locked: LockedPlan, request: Request) -> list[Item]:
    plan = locked.plan
    cells = cells_of_update(plan, request.family, request.update) if request.stage == "update" else plan_cells(plan)
    return stage_items(plan, request.family, request.stage, request.update, cells)


def _problems(locked: LockedPlan) -> dict[str, Problem]:
    """The plan's training problems, which are all that an import needs of the plan's files."""
    resource = locked.plan.problems.training
    path = locate(resource, locked.path)
    if not path.exists():
        raise UsageError(
            f"problems.training: `{resource.at}` is not at {path}", hint="An import needs the problems, and no model."
        )
    wanted = locked.lock.resources.get("problems.training", {}).get("sha256")
    if wanted is not None and sha256_path(path) != wanted:
        raise IntegrityError(f"{path}: is not the file of training problems that the plan was locked with")
    return load_problems(path)


def _check_gates(locked: LockedPlan, root: Path, request: Request) -> None:
    run, folder = RunFolder(root), _folder(RunFolder(root), request)
    deviations = read_deviations(deviations_path(locked.path), locked.digest)
    name = request.name
    if stage_is_complete(folder):
        raise GateError(f"{folder}: {name} is there already; a stage is never replaced")
    parts = stage_parts(folder)
    if (parts and not is_imported(part_info(parts[0]))) or (not parts and stage_is_begun(folder)):
        raise GateError(f"{folder}: {name} is partly sampled; `ablation run` goes on with it")
    if run.stopped(request.family, request.arm).is_file():
        raise GateError(f"{request.family}/{request.arm}: a stop rule ended it, so it has no further stage")
    if request.stage == "sweep":
        if request.family not in families_of(planned_runs(locked.plan)):
            raise GateError(f"family `{request.family}` has no part in this plan's verdict, so nothing runs in it")
    else:
        for family in dict.fromkeys((locked.plan.main_family, request.family)):
            if not stage_is_complete(run.sweep(family)):
                raise GateError(
                    f"{name}: the sweep of {family} comes first: it is what every arm is compared with",
                    hint=f"Run `ablation import --stage sweep --family {family}{run_options(locked, root)} FILE`.",
                )
        check_family_gate(locked, root, deviations, request.family, request.arm)
    own = next((path.parent for path in sorted(root.glob("*/*/*/stage.json")) if not is_imported(stage_info(path.parent))), None)
    if own is not None and opened_by(deviations, "engine") is None:
        raise GateError(
            f"{own}: was sampled by this program, and a run does not mix engines",
            hint="Import into a run folder of its own (--run FOLDER). Mixing them is a deviation: `ablation plan deviate PLAN "
            "--opens engine ...`.",
        )


def _tokens(locked: LockedPlan, root: Path, request: Request) -> Tokens:
    """Ids of the tags: as the user says, by the tokenizer, or as in the run's stages."""
    plan = locked.plan
    place = request.tokenizer or locate(plan.model.base, locked.path)
    path = place if place.name == FILE else place / FILE
    if request.tokenizer is not None and not path.is_file():
        raise UsageError(f"--tokenizer: there is no {path}")
    found = tokens_from_file(path, plan.model.tokens) if path.is_file() else None
    earlier = next(iter(sorted(root.glob("*/*/*/stage.json"))), None)
    if request.ids is not None:
        said = tokens_from_words(request.ids, plan.model.tokens)
        if found is not None and found.ids != said.ids:
            raise UsageError(f"--ids: found {request.ids}; by {path} they are {_words(found.ids)}")
        found = found or said
    if earlier is not None:
        info = stage_info(earlier.parent)
        ids = TokenIds(info.think_open_id, info.think_close_id, info.end_ids)
        if found is not None and found.ids != ids:
            raise UsageError(
                f"--ids: the tags and end tokens are {_words(found.ids)} here, but {_words(ids)} in {earlier.parent}"
            )
        found = found or Tokens(ids)
    if found is None:
        tokens = plan.model.tokens
        raise UsageError(
            f"the ids of {', '.join([tokens.open, tokens.close, *tokens.end])} are not known: the plan's model is not at {place}",
            hint="Say --tokenizer FOLDER (with tokenizer.json), or the ids: --ids OPEN,CLOSE,END.",
        )
    return found


def _info(locked: LockedPlan, request: Request, ids: TokenIds, engine: dict) -> StageInfo:
    sampling = locked.plan.sampling
    return StageInfo(
        plan_digest=locked.digest,
        family=request.family,
        arm=request.arm,
        stage=request.stage,
        update=request.update,
        adapter_sha256="",
        think_open_id=ids.open,
        think_close_id=ids.close,
        end_ids=ids.end,
        max_tokens=sampling.max_tokens,
        sampling=sampling.model_dump(),
        engine=engine,
    )


def _unclosed(locked: LockedPlan, stage: Stage) -> list[str]:
    """A note if not one rollout closes its thinking: then its marks were lost, or are others than the plan's."""
    tag = locked.plan.model.tokens.close
    if stage.thinking.closed.any():
        return []
    return [
        f"warning: no row closes its thinking (`{tag}`), so no answer was separated from one. Were the texts decoded without "
        "special tokens, or do they have other marks than the plan's `model.tokens` (gpt-oss: `<|channel|>`)?"
    ]


def _pair(root: Path, request: Request, stage: Stage) -> list[str]:
    """Notes on the pairing with the family's sweep."""
    if request.stage != "readout":
        return []
    return check_pairing(read_stage(RunFolder(root).sweep(request.family)), stage, Path(request.files[0]))


def _told_before(root: Path, request: Request, engine: dict) -> list[str]:
    """A note for each file that was another stage's already: rollouts are of one model."""
    journal = RunFolder(root).journal
    events = read_journal_chain(journal).records if journal.exists() else []
    before = {
        digest: event["stage"]
        for event in events
        if event.get("event") == "stage_imported" and event["stage"] != request.name
        for digest in event["source_sha256"]
    }
    return [
        f"warning: {name} has the bytes that were imported as {before[digest]}: is it the right file?"
        for name, digest in zip(engine["source"], engine["sha256"], strict=True)
        if digest in before
    ]


def _undecided(locked: LockedPlan, request: Request, info: StageInfo) -> list[str]:
    """A note where damage rules will never be said of these rows: better known now than when the verdict is asked for."""
    absent = absent_measures(info)
    rules = [rule.name for rule in locked.plan.verdict.damage if rule.measure in absent]
    if not rules or request.stage == "update":
        return []
    return [
        f"warning: {', '.join(rules)} cannot be said of these rollouts ({'; '.join(dict.fromkeys(absent.values()))}): "
        "an arm on which no other rule fires will be UNDECIDED, whatever is imported later"
    ]


def _write(
    locked: LockedPlan, root: Path, request: Request, info: StageInfo, rollouts: Sequence[Rollout], problems: dict[str, Problem]
) -> None:
    run = open_run(root, locked)
    check_journal(root, locked.digest)
    _check_gates(locked, root, request)  # what another process did since
    folder = _folder(run, request)
    part = part_file(folder, 0)
    journal = Journal(run.journal, locked.digest)
    try:
        begin_session(locked, root, journal)
        take_up_deviations(run, locked, journal)
        files = ", ".join(info.engine["source"])
        write_mark(
            ledger_path(locked.path),
            plan=locked.digest,
            study=locked.plan.name,
            stage=request.name,
            use=use_of(request.stage),
            problems=[problems[name] for name in dict.fromkeys(one.problem for one in rollouts)],
            reason=f"sampled elsewhere, imported from {files}",
            run=journal.run,
            journal=journal.head,
        )
        write_part(part, info, rollouts)
        record = stage_record(folder, info, [part.name])
        # The event goes first: a kill in between leaves an event without its stage, never a stage without its event.
        journal.append(
            "stage_imported",
            stage=request.name,
            rollouts=len(rollouts),
            tokens=sum(len(one.token_ids) for one in rollouts),
            source=info.engine["source"],
            source_sha256=info.engine["sha256"],
            stage_sha256=sha256_bytes(record),
        )
        finish_stage(folder, info, [part.name])
        if request.stage == "readout":
            journal.append("arm_finished", arm=f"{request.family}/{request.arm}")
        end_session(locked, root, journal)
    finally:
        journal.close()


def _folder(run: RunFolder, request: Request) -> Path:
    if request.stage == "update":
        return run.update(request.family, request.arm, request.update)
    return run.sweep(request.family) if request.stage == "sweep" else run.readout(request.family, request.arm)


def _words(ids: TokenIds) -> str:
    return ",".join(map(str, (ids.open, ids.close, *ids.end)))
