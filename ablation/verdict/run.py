"""The verdict on a run folder, from its rollouts and its locked plan alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import cache
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from ablation.errors import IncompleteError, IntegrityError
from ablation.files import parse_json, sha256_file
from ablation.measures.measure import measure
from ablation.plan.choose import command_options
from ablation.plan.extension import check_rules
from ablation.plan.external import external_arms
from ablation.plan.model import START, Plan
from ablation.plan.rules import Rule
from ablation.plan.runs import families_of, planned_runs
from ablation.problems.problem import Problem, load_problems
from ablation.rollouts.attempts import attempts_of
from ablation.rollouts.folder import RunFolder
from ablation.rollouts.grades import SLOW, grades_of, other_graders, read_grades
from ablation.rollouts.imported import absent_measures, import_note, is_imported, marks
from ablation.rollouts.journal_chain import COMPLETED, check_journal, clock_note, read_journal
from ablation.rollouts.outcomes import Outcomes, outcomes
from ablation.rollouts.schema import StageInfo
from ablation.rollouts.seen import check_lock_copy, deviations_of_run
from ablation.rollouts.stage import Stage
from ablation.rollouts.started import options_of_start
from ablation.rollouts.store import read_stage, stage_is_complete, stage_parts
from ablation.verdict.completeness import check_pairing, check_stage_of_plan, missing_rollouts
from ablation.verdict.evaluated import Evaluations
from ablation.verdict.figures import figures_of
from ablation.verdict.labels import judge_damage, missing_reasons, replication, why_open
from ablation.verdict.locked import Locked
from ablation.verdict.model import (
    FROM_ROLLOUTS,
    INCOMPLETE,
    NO_STEP,
    STABLE,
    STOPPED,
    UNDECIDED,
    ArmVerdict,
    Missing,
    Verdict,
)
from ablation.verdict.phase2 import Phase2
from ablation.verdict.steps import steps_taken

if TYPE_CHECKING:
    from ablation.verdict.claims import ClaimVerdict

AUDITED = ("negative_share", "net_share", "truncated_share", "kl_share")


def judge_run(root: Path, locked: Locked, options: str | None = "", *, regrade: bool = False) -> Verdict:
    """The verdict on the run in `root`. What is missing is part of it: nothing is raised for an unfinished run.

    `options` are those that make `ablation run` go on with this very run: ` --plan PATH --run PATH`. None: the folder is
    somebody else's, so no command is named. `regrade`: every answer is graded here, whatever is stored.

    Raises `IntegrityError` if the folder is of another plan, its rollouts or grades are not what was written, or its journal
    or deviations were touched, `IncompleteError` if a grader failed or grading was interrupted.
    """
    reader = RunReader(root, locked, options, regrade)
    plan = locked.plan
    second = plan.verdict.replication.family
    headline = replication(plan, reader.arm)
    planned = planned_runs(plan, headline.stable_arm)
    pairs = planned_runs(plan, headline.stable_arm, also=reader.run.has)
    arms = {pair: reader.arm(*pair) for pair in pairs}
    gaps = {pair: reader.missing(*pair) for pair in planned if arms[pair] is None}
    decides = [(plan.main_family, arm) for arm in plan.arms]
    decides += [(second, arm) for arm in (plan.verdict.replication.control, headline.stable_arm)]
    missing = [line for pair in decides for line in gaps.pop(pair, ())]
    later = [line for lines in gaps.values() for line in lines]
    if headline.stable_arm is None and any(pair in headline.needed for pair in decides[1 : len(plan.arms)]):
        what = f"{second}: the first stable arm of {plan.main_family}, which is not known yet"
        missing.append(Missing(what, missing[0].command if reader.imported and missing else reader.command("--all")))
    once: dict[str, Missing] = {}
    for one in [*missing, *later]:  # a sweep is asked for by each of its arms
        once.setdefault(one.what, one)
    check_lock_copy(root, locked)
    journal = check_journal(root, locked.digest)
    deviations = deviations_of_run(root, locked, journal)
    if journal.stale_grades and not regrade:
        raise IncompleteError(
            f"{root}: {', '.join(journal.stale_grades)}: was being graded again, and that was not finished",
            hint=f"Run {reader.grade_command}.",
        )
    evaluations = Evaluations(root, locked, journal.events, deviations, options, regrade)
    return Verdict(
        plan=plan.name,
        digest=locked.digest,
        source=FROM_ROLLOUTS,
        label=INCOMPLETE if missing else headline.label,
        reasons=missing_reasons("Rollouts that the plan asks for are not there.", headline) if missing else headline.reasons,
        missing=list(once.values()),
        arms=[one for one in arms.values() if one is not None],
        stable_arm=headline.stable_arm,
        sweeps={family: found[2] for family in families_of(pairs) if (found := reader.sweep(family))},
        sections=Phase2(evaluations, INCOMPLETE if missing else headline.label, headline.stable_arm, reader.check).sections(),
        audits={f"{family}/{arm}": found for family, arm in pairs if (found := _audit_ranges(reader.run, plan, family, arm))},
        steps={
            f"{family}/{arm}": found
            for family, arm in pairs
            if (found := steps_taken(reader.run, family, arm, plan.training.updates))
        },
        notes=[
            *map(import_note, sorted(reader.imported.values(), key=_stage_order)),
            *reader.notes,
            *journal.notes,
            *clock_note(journal, locked.lock.locked_at),
        ],
        deviations=deviations,
        attempts=attempts_of(root, locked.path, locked.digest, journal.chain),
        external=external_arms(plan),
        imported={name: one.engine for name, one in sorted(reader.imported.items())},
        journal=journal.as_json(),
        claims=_claims(reader),
        next_command=_together(reader, once.values()) if options is not None else None,
    )


def _claims(reader: RunReader) -> list[ClaimVerdict]:
    """The plan's claims; their tests are imported only where there are any."""
    if not reader.plan.verdict.claims:
        return []
    from ablation.verdict.claims import judge_claims

    return judge_claims(reader.plan, reader.claimed)


def _stage_order(info: StageInfo) -> tuple[str, bool, str]:
    """Family by family, each sweep first."""
    return info.family, info.arm != START, info.arm


def _together(reader: RunReader, missing: Collection[Missing]) -> str | None:
    """The one command that makes all of `missing`, or None if nothing is."""
    commands = {one.command for one in missing}
    if len(commands) == 1:
        return commands.pop()
    return reader.command("--all") if commands and not reader.imported else None  # each file is imported by itself


def open_phase2(root: Path, locked: Locked, reader: RunReader | None = None) -> Phase2:
    """Phase 2 of the run in `root`, section by section as it is asked for. Raises as `judge_run` does."""
    journal = check_journal(Path(root), locked.digest)
    reader = reader or RunReader(root, locked, None)
    headline = replication(locked.plan, reader.arm)
    evaluations = Evaluations(root, locked, journal.events, deviations_of_run(Path(root), locked, journal))
    return Phase2(evaluations, headline.label, headline.stable_arm, reader.check)


def judge_check(root: Path, locked: Locked, family: str, arm: str, update: int) -> ArmVerdict | None:
    """The extension's check of an arm after `update`, from its rollouts; None if it is not whole. Raises as `judge_run` does."""
    return RunReader(root, locked, None).check(family, arm, update)


def first_stable_arm(root: Path, locked: Locked, reader: RunReader | None = None) -> str | None:
    """The arm that the plan replicates beside the control: the first one in plan order that is stable in the first family.

    None if no arm is. Raises `IncompleteError` if an arm that comes before it has no result yet or is undecided.
    """
    reader, plan = reader or RunReader(root, locked, command_options(locked.path)), locked.plan
    for arm in (name for name in plan.arms if name != plan.verdict.replication.control):
        one = reader.arm(plan.main_family, arm)
        if one is None:
            first = reader.missing(plan.main_family, arm)[0]
            raise IncompleteError(f"which arm is replicated is not known yet: {first.what}", hint=f"Run `{first.command}`.")
        if one.label == UNDECIDED:
            raise IncompleteError(f"which arm is replicated cannot be said: {one.name} is undecided ({why_open(one)})")
        if one.label == STABLE:
            return arm
    return None


class RunReader:
    """Reads each stage of a run once: for several questions about a run that does not change meanwhile."""

    def __init__(self, root: Path, locked: Locked, options: str | None = "", regrade: bool = False) -> None:
        self.run, self.locked, self.plan, self.options = RunFolder(Path(root)), locked, locked.plan, options
        self.regrade = regrade
        self.imported: dict[str, StageInfo] = {}
        self.notes: list[str] = []
        self._gaps: dict[tuple[str, str], str] = {}
        self._claimed: dict[tuple[str, str], Outcomes] = {}
        self.sweep: Callable[[str], tuple[Stage, Outcomes, dict] | None] = cache(self._sweep)
        self.arm: Callable[[str, str], ArmVerdict | None] = cache(self._arm)
        self.check: Callable[[str, str, int], ArmVerdict | None] = cache(self._check)
        self.problems: Callable[[], dict[str, Problem]] = cache(self._problems)
        self._told: Callable[[], set[str]] = cache(self._journal_tells)
        self._events: Callable[[], list[dict[str, Any]]] = cache(self._read_events)

    def missing(self, family: str, arm: str) -> list[Missing]:
        """What stands between this arm and its result."""
        wanted = [START] if self.sweep(family) is None else []
        wanted += [arm] if (family, arm) in self._gaps else []
        return [Missing(self._gaps[family, one], self._makes(family, one, arm)) for one in wanted]

    def _makes(self, family: str, what: str, arm: str) -> str:
        where = "" if family == self.plan.main_family else f" --family {family}"
        if not self.imported:
            return self.command(f"--arm {arm}{where}")
        stage = "--stage sweep" if what == START else f"--arm {arm} --stage readout"
        return self.command(f"{stage}{where}", "import")

    def command(self, what: str, by: str = "run") -> str:
        """What makes it (a run or an import of a file), or who has to."""
        if self.options is None:
            return f"whoever made the run `{self.run.root.name}` has to finish it"
        started = options_of_start(self._events()) if by == "run" else ""
        return f"ablation {by} {what}{started}{self.options}" + (" FILE" if by == "import" else "")

    def _problems(self) -> dict[str, Problem]:
        path = self.run.problems
        if not path.is_file():
            raise IntegrityError(
                f"{path}: is not there", hint="Put back the copy of the training problems that the run began with."
            )
        wanted = self.locked.lock.resources.get("problems.training", {}).get("sha256")
        if wanted is not None and sha256_file(path) != wanted:
            raise IntegrityError(f"{path}: is not the file of training problems that the plan was locked with")
        return load_problems(path)

    def _journal_tells(self) -> set[str]:
        """Every stage that the journal says was sampled or imported."""
        return {event["stage"] for event in self._events() if event["event"] in COMPLETED}

    def _read_events(self) -> list[dict[str, Any]]:
        return read_journal(self.run.journal) if self.run.journal.is_file() else []

    def _stage(self, folder: Path, family: str, arm: str, kind: str, update: int) -> Stage | None:
        """The stage, or None after noting what is missing of it."""
        if not stage_is_complete(folder):
            removed = folder.relative_to(self.run.root).as_posix() in self._told() and not stage_parts(folder)
            more = ", and the journal tells that it was: it was removed" if removed else ""
            self._gaps[family, arm] = f"{family}/{arm}: the {kind} is not there{more}"
            return None
        stage = read_stage(folder)
        check_stage_of_plan(stage, self.plan, self.locked.digest, (family, arm, kind, update), folder)
        if is_imported(stage.info):
            self.imported[folder.relative_to(self.run.root).as_posix()] = stage.info
        gap = missing_rollouts(stage, self.plan, folder)
        if gap:
            self._gaps[family, arm] = gap
            return None
        return stage

    @property
    def grade_command(self) -> str:
        """What fills grades that are missing. A folder that is judged alone is named."""
        return f"`ablation grade{f' --run {quote(str(self.run.root))}' if self.options is None else self.options}`"

    def _outcomes(self, folder: Path, stage: Stage) -> Outcomes:
        grades = grades_of(folder, stage, self.problems(), again=self.regrade)
        stored = read_grades(folder, stage) if self._slow(stage) else None
        if stored is not None:
            name = folder.relative_to(self.run.root).as_posix()
            differ = sum(one != other for one, other in zip(stored.grades, grades, strict=True))
            if differ:
                self.notes.append(f"{name}: {differ} rollouts are graded otherwise here than it is stored")
            for grader in other_graders(stored) if not self.regrade else ():
                self.notes.append(f"{name}: was graded by another version of grader `{grader}`; --regrade asks this one")
        try:
            return outcomes(stage, self.problems(), self.plan.loops, grades)
        except IncompleteError as error:
            hint = f"A grader's failure is not a wrong answer. Repair what made it fail, then run {self.grade_command}."
            raise IncompleteError(error.message, hint=hint) from None

    def _slow(self, stage: Stage) -> bool:
        return any(self.problems()[name].grader in SLOW for name in stage.problem.values)

    def _sweep(self, family: str) -> tuple[Stage, Outcomes, dict] | None:
        stage = self._stage(self.run.sweep(family), family, START, "sweep", 0)
        if stage is None:
            return None
        own = self._outcomes(self.run.sweep(family), stage)
        return stage, own, measure(own)

    def _arm(self, family: str, arm: str) -> ArmVerdict | None:
        folder, stopped = self.run.readout(family, arm), self.run.stopped(family, arm)
        if stopped.is_file():
            if stage_is_complete(folder):
                raise IntegrityError(f"{stopped}: says that the run was ended, but {folder} has a readout")
            return ArmVerdict(family, arm, STOPPED, stopped=self._stop(stopped))
        if any(event["event"] == "arm_stopped" and event.get("arm") == f"{family}/{arm}" for event in self._events()):
            self._gaps[family, arm] = f"{family}/{arm}: a stop rule ended it, and its stopped.json is not there"
            return None
        updates = self.plan.training.updates
        found = self.judged(folder, family, arm, ("readout", updates), self.plan.verdict.damage)
        steps = steps_taken(self.run, family, arm, updates) if found is not None and not found.marks else None
        whole = steps is not None and (steps["updates"] == updates or self.plan.arms[arm].trained_as_a_whole)
        return replace(found, label=NO_STEP) if found and steps and whole and not steps["stepped"] else found

    def _check(self, family: str, arm: str, update: int) -> ArmVerdict | None:
        """The extension's check of an arm after `update`; None if it is not whole."""
        folder = self.run.check(family, arm, update)
        return self.judged(folder, family, arm, ("check", update), check_rules(self.plan))

    def judged(self, folder: Path, family: str, arm: str, stage_of: tuple[str, int], rules: list[Rule]) -> ArmVerdict | None:
        """The stage in `folder` (kind and update: `stage_of`) against the family's sweep; None if one of the two is not whole."""
        stage = self._stage(folder, family, arm, *stage_of)
        sweep = self.sweep(family)
        if stage is None or sweep is None:
            return None
        self.notes += check_pairing(sweep[0], stage, folder)
        own = self._outcomes(folder, stage)
        if stage_of[0] == "readout" and self.plan.verdict.claims:
            self._claimed[family, arm] = own
        measured = measure(own)
        infos = (sweep[0].info, stage.info)
        absent = absent_measures(infos[0]) | absent_measures(infos[1])
        figures = figures_of(
            rules, (own, sweep[1]), (measured, sweep[2]), self.plan.statistics, absent=absent, unread=self.plan.verdict.unread
        )
        found = judge_damage(family, arm, rules, figures)
        return replace(found, marks=marks(infos))

    def claimed(self, family: str, arm: str) -> Outcomes | None:
        """A sweep (arm `start`) or readout for the plan's claims; None where it is not there."""
        if arm == START:
            found = self.sweep(family)
            return None if found is None else found[1]
        if self.arm(family, arm) is None and (family, arm) not in self._claimed:
            return None
        return self._claimed.get((family, arm))

    def _stop(self, path: Path) -> dict[str, Any]:
        try:
            content = parse_json(path.read_bytes())
            known = content["rule"] in {rule.name for rule in self.plan.stop_rules} and isinstance(content["update"], int)
        except (ValueError, KeyError, TypeError):
            raise IntegrityError(f"{path}: is not a record of a stop rule") from None
        if not known:
            raise IntegrityError(f"{path}: rule `{content['rule']}` is not a stop rule of this plan")
        return content


def _audit_ranges(run: RunFolder, plan: Plan, family: str, arm: str) -> dict[str, list[float]]:
    """Lowest and highest audited share over the updates before the readout that have an audit; none of an external arm."""
    if plan.arms[arm].external is not None:
        return {}
    found: dict[str, list[float]] = {}
    paths = [run.audit(family, arm, k) for k in range(1, plan.training.updates + 1)]
    for path in filter(Path.is_file, paths):
        try:
            weights = parse_json(path.read_bytes())["weights"]
            shares = {name: weights[name] for name in AUDITED}
            if any(
                share is not None and not (isinstance(share, int | float) and math.isfinite(share)) for share in shares.values()
            ):
                raise ValueError("a share that is no number")
        except (ValueError, KeyError, TypeError):
            raise IntegrityError(f"{path}: is not an audit of weights") from None
        for name, share in shares.items():
            if share is not None:
                found.setdefault(name, []).append(share)
    return {name: [min(values), max(values)] for name, values in found.items()}
