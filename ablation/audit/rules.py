"""Rules and labels by this audit's own code, from the written definitions (plans/README.md, runs/README.md).

A number is compared as it is written: 0.1 is one tenth. What is not known decides nothing: a rule about it is undecided.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from ablation.audit.intervals import Ratio

DAMAGED, STABLE, UNDECIDED, STOPPED = "DAMAGED", "STABLE", "UNDECIDED", "STOPPED"


@dataclass(frozen=True)
class Compared:
    """A subject beside its reference: measures of both, and ratios subject / reference."""

    subject: Mapping[str, Any]
    reference: Mapping[str, Any]
    ratios: Mapping[str, Ratio]


@dataclass(frozen=True)
class Ruled:
    """What came of one rule."""

    name: str
    value: Fraction | None
    holds: bool | None


def written(number: float | int | Fraction) -> Fraction:
    """The number as its shortest decimal text says it."""
    return Fraction(str(number)) if isinstance(number, float) else Fraction(number)


def apply(rule: Mapping[str, Any], compared: Compared) -> Ruled:
    value = tested(rule, compared)
    return Ruled(rule["name"], value, None if value is None else meets(value, rule["op"], rule["limit"]))


def meets(value: Fraction, op: str, limit: float | int) -> bool:
    """The limit itself passes exactly when `op` has an `=`."""
    distance = value - written(limit)
    if distance == 0:
        return op.endswith("=")
    return (distance < 0) == op.startswith("<")


def tested(rule: Mapping[str, Any], compared: Compared) -> Fraction | None:
    """The number that a rule looks at, None if there is none."""
    measure, compare = rule["measure"], rule["compare"]
    own, before = compared.subject.get(measure), compared.reference.get(measure)
    if compare == "value":
        return None if own is None else written(own)
    if compare == "change":
        return None if own is None or before is None else written(own) - written(before)
    ratio = compared.ratios.get(measure)
    if compare in ("ratio", "ratio_low", "ratio_high"):
        if ratio is None:
            return None
        end = {"ratio": ratio.value, "ratio_low": ratio.low, "ratio_high": ratio.high}[compare]
        return None if end is None else written(end)
    raise KeyError(f"comparison `{compare}` is not known to this audit")


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


def replication(statuses: Mapping[tuple[str, str], str], arms: list[str], control: str, families: tuple[str, str]) -> Headline:
    """The study's headline. `statuses`: (family, arm) -> label, for every arm that has a result.

    REPLICATED: the control is damaged in both families, and so is the first arm in plan order that was stable in the first one
    stable in the second. A stopped arm is neither.
    """
    first, second = families
    looked_at = [(first, control), (second, control)]
    codes = [
        {STABLE: "CONTROL_NOT_DAMAGED", STOPPED: "STOPPED"}[statuses[pair]]
        for pair in looked_at
        if statuses.get(pair) in (STABLE, STOPPED)
    ]
    others = [arm for arm in arms if arm != control]
    candidates = [arm for arm in others if statuses.get((first, arm)) not in (DAMAGED, STOPPED)]
    chosen = None
    if not candidates:
        codes.append("NO_STABLE_ARM")
    elif statuses.get((first, candidates[0])) == STABLE:
        chosen = candidates[0]
        looked_at.append((second, chosen))
        again = statuses.get((second, chosen))
        codes += {DAMAGED: ["NOT_STABLE_AGAIN"], STOPPED: ["STOPPED"]}.get(again or "", [])
    else:
        looked_at.append((first, candidates[0]))
    if any(pair not in statuses for pair in looked_at) or any((first, arm) not in statuses for arm in arms):
        return Headline("INCOMPLETE", ["MISSING", *(["REPLICATED_RULED_OUT"] if codes else [])], chosen)
    if codes:
        return Headline("NOT_REPLICATED", codes, chosen)
    open_ones = [pair for pair in looked_at if statuses[pair] == UNDECIDED]
    if open_ones:
        return Headline("UNDECIDED", ["UNDECIDED"] * len(open_ones), chosen)
    return Headline("REPLICATED", ["CONTRAST_HELD_TWICE"], chosen)


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
