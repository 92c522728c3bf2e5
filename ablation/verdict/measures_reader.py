"""Reading a measures file: strict YAML, checked against itself and against the plan, every fault with file, line and field."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ablation.errors import UsageError
from ablation.plan.explain import explain, fault_at
from ablation.plan.extension import FIRST_STABLE, eligible_checks
from ablation.plan.load import field_path, hidden
from ablation.plan.measures import COUNTS
from ablation.plan.model import Plan
from ablation.plan.phase2 import Guard, guard_set
from ablation.plan.rules import Rule
from ablation.plan.yaml_reader import Document, Fault, read_yaml
from ablation.verdict.measures_file import At, Comparison, MeasuresFile, Ratios, Release, ReportedSelection
from ablation.verdict.rules import RuleResult, judge, number

START = "the start"
MAX_BYTES = 10_000_000
"""Of a measures file."""


class MeasuresError(UsageError):
    """A measures file that cannot be used; all that is wrong with it."""

    def __init__(self, path: Path, faults: list[Fault]) -> None:
        self.faults = faults
        where = [f"{path}:{one.line}:{one.column}: {field_path(one.path)}" for one in faults]
        super().__init__("\n".join(f"{place}: {one.text}" for place, one in zip(where, faults, strict=True)))


def load_measures(path: Path, plan: Plan) -> MeasuresFile:
    """The figures in `path`, checked against themselves and against `plan`. Raises `MeasuresError` with all faults."""
    document = read_yaml(_read(Path(path)))
    faults, found = list(document.faults), None
    if isinstance(document.value, dict):
        try:
            found = MeasuresFile.model_validate(document.value)
        except ValidationError as error:
            faults += [fault for fault in explain(error, document, MeasuresFile) if not hidden(fault, document)]
    if found is not None and not faults:
        faults += [fault_at(document, at, text) for at, text in _against_plan(found, plan)]
    if faults or found is None:
        raise MeasuresError(Path(path), sorted(set(faults)) or [_not_a_mapping(document)])
    return found


def _read(path: Path) -> bytes:
    """The bytes of the file. A pipe or a device, which could be read for ever, and a file that is too large are not opened."""
    hint = "Check the path of --measures."
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"{path}: cannot be read: it is not a file", hint=hint)
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise UsageError(f"{path}: has {size:,} bytes; a measures file has at most {MAX_BYTES:,}", hint=hint)
        return path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{path}: cannot be read: {reason}", hint=hint) from None


def _not_a_mapping(document: Document) -> Fault:
    return Fault(1, 1, (), "is not a mapping; `runs/README.md` describes measures files")


def _against_plan(found: MeasuresFile, plan: Plan) -> Iterator[tuple[At, str]]:
    """What the plan does not have, or says otherwise."""
    seen = set()
    for index, one in enumerate(found.comparisons):
        at: At = ("comparisons", index)
        if one.family not in plan.families:
            yield (*at, "family"), f"`{one.family}` is no family of plan {plan.name}: {', '.join(plan.families)}"
        if one.arm not in plan.arms:
            yield (*at, "arm"), f"`{one.arm}` is no arm of plan {plan.name}: {', '.join(plan.arms)}"
        if (one.family, one.arm) in seen:
            yield (*at, "arm"), f"{one.family}/{one.arm} is compared twice"
        seen.add((one.family, one.arm))
        yield from _section_faults(at, one, plan.verdict.damage, plan.sweep_rollouts, plan)
    for name in ("held_out", "never_used", "release", "selection"):
        one, of_plan = getattr(found, name), _section_of(plan, name)
        if one is None:
            continue
        if of_plan is None:
            where = "extension.selection" if name == "selection" else f"verdict.{name}"
            yield (name,), f"plan {plan.name} has no section {where}"
        elif name == "release":
            yield from _release(found, one, plan)
        elif name == "selection":
            yield from _selection(one, plan)
        else:
            yield from _section_faults((name,), one, of_plan.rules, of_plan.rollouts, plan)
    if found.blinded_read is not None:
        read = found.blinded_read
        wanted = plan.verdict.held_out.blinded_read.pairs if plan.verdict.held_out else None
        if read.passes > read.pairs:
            yield ("blinded_read", "passes"), f"{read.passes} is more than the pairs, {read.pairs}"
        if wanted is None:
            yield ("blinded_read",), f"plan {plan.name} has no blinded read"
        elif read.pairs != wanted:
            yield ("blinded_read", "pairs"), f"found {read.pairs}; the plan reads {wanted} pairs"
        if found.held_out is None:
            yield ("blinded_read",), "is there without `held_out`, whose win it would verify"


def _section_of(plan: Plan, name: str) -> Any:
    if name == "selection":
        return plan.extension and plan.extension.selection
    return getattr(plan.verdict, name)


def _selection(one: ReportedSelection, plan: Plan) -> Iterator[tuple[At, str]]:
    """Each eligible checkpoint once, from the earliest to the latest, all against the one start on the one set."""
    extension = plan.extension
    assert extension is not None and extension.selection is not None
    updates, last = eligible_checks(extension), 0
    arms = list(plan.arms) if extension.arms == FIRST_STABLE else extension.arms
    known = [f"{arm}@{update}" for arm in arms for update in updates]
    seen: set[str] = set()
    start: dict[str, int] = {}
    for index, candidate in enumerate(one.candidates):
        at: At = ("selection", "candidates", index)
        name, wanted = candidate.subject_name, extension.selection.rollouts
        if candidate.rollouts != wanted:
            yield (*at, "rollouts"), f"found {candidate.rollouts}; the plan has {wanted}"
        if name in seen:
            yield (*at, "subject_name"), f"`{name}` is a candidate twice"
        elif name not in known:
            checks = ", ".join(map(str, updates))
            yield (*at, "subject_name"), f"`{name}` is no eligible check of plan {plan.name}: {'|'.join(arms)}@ one of {checks}"
        else:
            update = int(name.rpartition("@")[2])
            if update < last:
                yield (*at, "subject_name"), f"`{name}` is listed after update {last}; the earliest is first"
            last = max(last, update)
        seen.add(name)
        for measure, count in candidate.reference.model_dump(include=set(COUNTS), exclude_none=True).items():
            if start.setdefault(measure, count) != count:
                text = f"{count} of the start on this set, and {start[measure]} beside a candidate before"
                yield (*at, "reference", measure), text


def judge_guard(found: MeasuresFile, guard: Guard, level: float) -> RuleResult:
    """A guard on the figures of its set: on held-out and never-used problems those of the file's own section, if it is of the
    same model and has them. `found` has a release.
    """
    release, name = found.release, guard_set(guard)
    assert release is not None
    own = getattr(found, name) if name in ("held_out", "never_used") else None
    if own is not None and own.subject_name == release.subject_name:
        result = judge(guard, replace(own.figures(level), stated={}), START)
        if result.holds is not None:
            return result
    return judge(guard, release.on(name).figures(level), START)


def _release(found: MeasuresFile, one: Release, plan: Plan) -> Iterator[tuple[At, str]]:
    """The release's own figures, and those of each of its sets."""
    of_plan = plan.verdict.release
    assert of_plan is not None
    yield from _section_faults(("release",), one, of_plan.guards, None, plan)
    for guard in of_plan.guards:
        if guard.name in one.reported and one.on(guard_set(guard)) is not one:
            yield ("release", "reported", guard.name), f"belongs to release.{guard_set(guard)}, whose figures are there"
        elif guard.name in one.reported and guard_set(guard) in ("held_out", "never_used"):
            result, said = judge_guard(found, guard, plan.statistics.level), one.reported[guard.name]
            if result.value is not None and result.holds != (said == "held"):
                yield ("release", "reported", guard.name), _contradicted(said, result)
    for name in ("main", "agent", "safety"):
        own, section = getattr(one, name), getattr(of_plan, name)
        if own is None:
            continue
        if section is None:
            yield ("release", name), f"plan {plan.name} has no section verdict.release.{name}"
            continue
        guards: list[Rule] = [guard for guard in of_plan.guards if guard_set(guard) == name]
        rules = [*guards, *(section.rules if name == "main" else [])]
        yield from _section_faults(("release", name), own, rules, getattr(section, "rollouts", None), plan)
        if name == "main" and one.win is not None:
            yield ("release", "win"), "is said beside figures of the main set, which decide it"


def _contradicted(said: str, result: RuleResult) -> str:
    assert result.value is not None
    return f"the source says `{said}`, but its own figure {number(result.value)} says otherwise"


def _section_faults(at: At, one: Comparison, rules: Sequence[Rule], rollouts: int | None, plan: Plan) -> Iterator[tuple[At, str]]:
    if one.rollouts is not None and rollouts is not None and one.rollouts != rollouts:
        yield (*at, "rollouts"), f"found {one.rollouts}; the plan has {rollouts}"
    if one.rollouts is None and any(getattr(one.subject, name) is not None for name in COUNTS):
        yield at, "has counts but no `rollouts`"
    by_name = {rule.name: rule for rule in rules}
    figures = one.figures(plan.statistics.level)
    for name, said in getattr(one, "reported", {}).items():
        if name not in by_name:
            yield (*at, "reported", name), f"`{name}` is no rule of this part of the plan: {', '.join(by_name)}"
            continue
        result = judge(by_name[name], figures)
        if result.value is not None and result.holds != figures.stated[name]:
            yield (*at, "reported", name), _contradicted(said, result)
    given = [("ratios", name, getattr(one.ratios, name)) for name in Ratios.model_fields]
    given += [(field, name, found) for field in ("change_intervals", "rates") for name, found in getattr(one, field).items()]
    for field, name, found in given:
        if found is not None and found.level is not None and found.level != plan.statistics.level:
            yield (*at, field, name, "level"), f"found {found.level}; the plan's intervals have {plan.statistics.level}"
