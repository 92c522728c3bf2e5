"""Reading a measures file: strict YAML, checked against itself and against the plan, every fault with file, line and field."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ablation.errors import UsageError
from ablation.plan.explain import explain, fault_at
from ablation.plan.load import field_path, hidden
from ablation.plan.model import Plan
from ablation.plan.phase2 import guard_set
from ablation.plan.rules import ALL_COUNTS, Rule
from ablation.plan.yaml_reader import Document, Fault, read_yaml
from ablation.verdict.measures_file import At, Comparison, MeasuresFile, Ratios, Release
from ablation.verdict.rules import judge, number

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
            yield from _release(one, plan)
        elif name == "selection":
            wanted = of_plan.rollouts
            for index, candidate in enumerate(one.candidates):
                if candidate.rollouts != wanted:
                    yield ("selection", "candidates", index, "rollouts"), f"found {candidate.rollouts}; the plan has {wanted}"
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


def _release(one: Release, plan: Plan) -> Iterator[tuple[At, str]]:
    """The release's own figures, and those of each of its sets."""
    of_plan = plan.verdict.release
    assert of_plan is not None
    yield from _section_faults(("release",), one, of_plan.guards, None, plan)
    for guard in of_plan.guards:
        if guard.name in one.reported and one.on(guard_set(guard)) is not one:
            yield ("release", "reported", guard.name), f"belongs to release.{guard_set(guard)}, whose figures are there"
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


def _section_faults(at: At, one: Comparison, rules: Sequence[Rule], rollouts: int | None, plan: Plan) -> Iterator[tuple[At, str]]:
    if one.rollouts is not None and rollouts is not None and one.rollouts != rollouts:
        yield (*at, "rollouts"), f"found {one.rollouts}; the plan has {rollouts}"
    if one.rollouts is None and any(getattr(one.subject, name) is not None for name in ALL_COUNTS):
        yield at, "has counts but no `rollouts`"
    by_name = {rule.name: rule for rule in rules}
    figures = one.figures(plan.statistics.level)
    for name, said in getattr(one, "reported", {}).items():
        if name not in by_name:
            yield (*at, "reported", name), f"`{name}` is no rule of this part of the plan: {', '.join(by_name)}"
            continue
        result = judge(by_name[name], figures)
        if result.value is not None and result.holds != figures.stated[name]:
            yield (*at, "reported", name), f"the source says `{said}`, but its own figure {number(result.value)} says otherwise"
    given = [("ratios", name, getattr(one.ratios, name)) for name in Ratios.model_fields]
    given += [(field, name, found) for field in ("change_intervals", "rates") for name, found in getattr(one, field).items()]
    for field, name, found in given:
        if found is not None and found.level is not None and found.level != plan.statistics.level:
            yield (*at, field, name, "level"), f"found {found.level}; the plan's intervals have {plan.statistics.level}"
