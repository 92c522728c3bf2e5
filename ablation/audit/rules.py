"""Rules and labels by this audit's own code, from the written definitions (plans/README.md, runs/README.md).

A number is compared as it is written: 0.1 is one tenth. What is not known decides nothing: a rule about it is undecided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from ablation.audit.intervals import Ratio
from ablation.audit.tables import decide, rows_of

DAMAGED, STABLE, UNDECIDED, STOPPED, NO_STEP = "DAMAGED", "STABLE", "UNDECIDED", "STOPPED", "NO_STEP"
OPEN = (UNDECIDED, NO_STEP)
"""Of an arm that is neither damaged nor stable, though it has a readout: a rule cannot be said, or no update took a step."""
REASONS = ("CONTROL_NOT_DAMAGED", "NO_STABLE_ARM", "NOT_STABLE_AGAIN", "STOPPED")


Estimates = Callable[[str, str], Ratio | None]
"""(`ratio`, `change` or `rate`, measure) -> the number with its interval; None if there is no such estimate."""


@dataclass(frozen=True)
class Compared:
    """A subject beside its reference: measures of both, and what has an interval."""

    subject: Mapping[str, Any]
    reference: Mapping[str, Any]
    estimate: Estimates
    open_counts: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Measure -> answers of subject and reference that nobody could label and that may count, too."""
    refused: bool = False
    """Whether the plan lets nothing be said of the two, because too many of their answers could not be read."""


@dataclass(frozen=True)
class Ruled:
    """What came of one rule."""

    rule: Mapping[str, Any]
    """As the plan has it."""
    value: Fraction | None
    holds: bool | None
    by_bound: bool = False
    """The value is the end of an exact bound, where there is no interval."""

    @property
    def name(self) -> str:
        return self.rule["name"]


def written(number: float | int | Fraction) -> Fraction:
    """The number as its shortest decimal text says it."""
    return Fraction(str(number)) if isinstance(number, float) else Fraction(number)


def apply(rule: Mapping[str, Any], compared: Compared) -> Ruled:
    if compared.refused:
        return Ruled(rule, None, None)
    measure, compare, op, limit = (rule[name] for name in ("measure", "compare", "op", "limit"))
    kind, _, end = compare.partition("_")
    estimated = compare != "value" if measure != "correct_rate" else True
    if compare == "change" and measure != "correct_rate":
        estimated = False
    found = compared.estimate("rate" if kind == "value" else kind, measure) if estimated else None
    if found is not None:
        value = {"": found.value, "low": found.low, "high": found.high}[end]
        if value is None and end and found.bound is not None:  # it can show that a rule holds, and nothing else
            value = found.bound[end == "high"]
            shows = meets(written(value), op, limit)
            return Ruled(rule, written(value) if shows else None, True if shows else None, by_bound=shows)
    else:
        value = _plain(kind, end, measure, compared)
    if value is None:
        return Ruled(rule, None, None)
    own = written(value)
    worlds = {meets(own, op, limit)}
    if measure in compared.open_counts and compare in ("value", "change", "rate"):
        more, before = compared.open_counts[measure]
        unit = Fraction(1, compared.subject["rollouts"]) if compare == "rate" else Fraction(1)
        ends = (own - (before if compare == "change" else 0), own + more * unit)
        worlds = {meets(one, op, limit) for one in ends}
    return Ruled(rule, own, worlds.pop() if len(worlds) == 1 else None)


def _plain(kind: str, end: str, measure: str, compared: Compared) -> Fraction | float | int | None:
    """A number that needs no estimate."""
    own, before = compared.subject.get(measure), compared.reference.get(measure)
    if own is None or end or kind == "ratio":
        return None
    if kind == "change":
        return None if before is None else written(own) - written(before)
    return Fraction(own, compared.subject["rollouts"]) if kind == "rate" else own


def meets(value: Fraction, op: str, limit: float | int) -> bool:
    """The limit itself passes exactly when `op` has an `=`."""
    distance = value - written(limit)
    if distance == 0:
        return op.endswith("=")
    return (distance < 0) == op.startswith("<")


def damage(ruled: list[Ruled]) -> str:
    """One rule that holds is damage; without one, one that cannot be said leaves it open."""
    said = {one.holds for one in ruled}
    return DAMAGED if True in said else UNDECIDED if None in said else STABLE


@dataclass
class Headline:
    """The replication's label, the codes of its reasons, and the arm that was replicated."""

    label: str
    codes: list[str] = field(default_factory=list)
    stable_arm: str | None = None


def replication(
    statuses: Mapping[tuple[str, str], str], arms: list[str], control: str, families: tuple[str, str], table: Any
) -> Headline:
    """The headline. `statuses`: (family, arm) -> label, for every arm that has a result.

    Looked at are the control in both families, the arms of the first one in plan order up to the first that is stable, and
    that arm in the second. What is found there are reasons, and the plan's table makes a label of them. A stopped arm is
    neither damaged nor stable, and neither is one that took no step.
    """
    first, second = families
    looked_at = [(first, control), (second, control)]
    not_damaged = {STABLE: "CONTROL_NOT_DAMAGED", STOPPED: "STOPPED"}
    codes = [not_damaged[statuses[pair]] for pair in looked_at if statuses.get(pair) in not_damaged]
    candidates = [arm for arm in arms if arm != control and statuses.get((first, arm)) not in (DAMAGED, STOPPED, NO_STEP)]
    chosen, may_be = None, set[str]()
    if not candidates:
        codes.append("NO_STABLE_ARM")
    elif statuses.get((first, candidates[0])) == STABLE:
        chosen = candidates[0]
        looked_at.append((second, chosen))
        again = statuses.get((second, chosen))
        codes += {DAMAGED: ["NOT_STABLE_AGAIN"], STOPPED: ["STOPPED"]}.get(again or "", [])
        may_be |= {"NOT_STABLE_AGAIN"} if again in OPEN else set()
    else:
        looked_at.append((first, candidates[0]))
        may_be |= {"NO_STABLE_ARM", "NOT_STABLE_AGAIN", "STOPPED"}
    open_ones = [pair for pair in looked_at if statuses.get(pair) in OPEN]
    may_be |= {"CONTROL_NOT_DAMAGED"} if any(arm == control for _, arm in open_ones) else set()
    label = "INCOMPLETE"
    if all(pair in statuses for pair in looked_at):
        facts = {name: True if name in codes else None if name in may_be else False for name in REASONS}
        label = decide(rows_of("replication", table), reasons=facts)
        if label == UNDECIDED or not codes:
            codes += [statuses[pair] for pair in open_ones]
        codes = codes or ["CONTRAST_HELD_TWICE"]
    if label == "INCOMPLETE" or any((first, arm) not in statuses for arm in arms):
        ruled_out = codes and label != "REPLICATED"
        return Headline("INCOMPLETE", ["MISSING", *(["REPLICATED_RULED_OUT"] if ruled_out else [])], chosen)
    return Headline(label, codes, chosen)


def stop_fired(rules: list[Mapping[str, Any]], metrics: list[Mapping[str, Any]]) -> str | None:
    """Name of the first stop rule that holds at the last of `metrics` (one an update, from update 1); None if none does."""
    for rule in rules:
        now, before = metrics[-1].get(rule["measure"]), metrics[0].get(rule["measure"])
        if now is None or (rule["compare"] == "change" and before is None):
            continue
        value = float(written(now) - written(before)) if rule["compare"] == "change" else now
        if meets(written(value), rule["op"], rule["limit"]):
            return rule["name"]
    return None
