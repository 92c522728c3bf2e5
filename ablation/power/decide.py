"""The plan's decision for many simulated studies at once: the same as `verdict.labels`, rule by rule and label by label.

Shapes: S studies, A arms in plan order, R damage rules. A test compares every study with `verdict.labels.replication`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ablation.plan.rules import OPERATORS, Rule
from ablation.plan.tables import STUDY, Condition, Row, Table, rows_of
from ablation.power.kinds import MEMBERS
from ablation.power.rates import Mean
from ablation.power.stages import Measures
from ablation.verdict.model import REPLICATED

CONTROL_FIRST, CONTROL_SECOND = "CONTROL_NOT_DAMAGED in the first family", "CONTROL_NOT_DAMAGED in the second family"
NO_STABLE_ARM, NOT_STABLE_AGAIN = "NO_STABLE_ARM", "NOT_STABLE_AGAIN"


Known = Mapping[str, Mean]
"""`Rates.means`."""


def is_simulated(rule: Rule, known: Known) -> bool:
    """Whether simulated stages have what the rule tests."""
    if rule.measure in MEMBERS:
        return rule.compare in ("value", "change")
    if rule.measure not in known:
        return False
    return rule.compare == "change" or (rule.compare == "value" and known[rule.measure].level is not None)


def tested(rule: Rule, subject: Measures, reference: Measures) -> np.ndarray:
    """The number that the rule tests, [S]."""
    own = subject[rule.measure]
    return own - reference[rule.measure] if rule.compare == "change" else own


def holds(rules: Sequence[Rule], subject: Measures, reference: Measures, known: Known) -> np.ndarray:
    """bool [S, R]. A rule on something that is not simulated does not hold."""
    found = np.zeros((len(subject["correct"]), len(rules)), dtype=bool)
    for place, rule in enumerate(rules):
        if is_simulated(rule, known):
            found[:, place] = OPERATORS[rule.op](tested(rule, subject, reference), rule.limit)
    return found


def first_stable(damaged_SA: np.ndarray) -> np.ndarray:
    """Place of the first stable arm beside the control, which is arm 0, in plan order, int [S]; -1 if there is none."""
    stable = ~damaged_SA[:, 1:]
    if not stable.shape[1]:
        return np.full(len(damaged_SA), -1)
    return np.where(stable.any(axis=1), stable.argmax(axis=1) + 1, -1)


@dataclass(frozen=True)
class Decision:
    """Reasons and label of each study."""

    reasons: dict[str, np.ndarray]  # name -> bool [S]; several can hold for one study
    label: np.ndarray  # str [S], by the plan's table

    @property
    def replicated(self) -> np.ndarray:
        """bool [S]."""
        return self.label == REPLICATED


def decide(damaged_SA: np.ndarray, control_again_S: np.ndarray, stable_again_S: np.ndarray, table: Table = STUDY) -> Decision:
    """The label of each study from what is damaged: all arms in the first family, control and first stable arm in the second."""
    stable = first_stable(damaged_SA)
    reasons = {
        CONTROL_FIRST: ~damaged_SA[:, 0],
        CONTROL_SECOND: ~control_again_S,
        NO_STABLE_ARM: stable < 0,
        NOT_STABLE_AGAIN: (stable >= 0) & stable_again_S,
    }
    codes: dict[str, np.ndarray] = {"STOPPED": np.zeros(len(damaged_SA), dtype=bool)}  # no run is stopped here
    for name, found in reasons.items():
        code = name.split()[0]
        codes[code] = codes.get(code, False) | found
    return Decision(reasons, label_of(rows_of("replication", table), codes))


def label_of(rows: Sequence[Row], reasons: Mapping[str, np.ndarray]) -> np.ndarray:
    """The label of the first row that is true, str [S]. A replication's table asks for `reasons` (bool [S]) alone."""
    conditions = [_holds(row.when, reasons) for row in rows]
    return np.select(conditions, [row.label for row in rows], default="UNDECIDED")


def _holds(condition: Condition | None, reasons: Mapping[str, np.ndarray]) -> np.ndarray:
    if condition is None:
        return np.ones_like(next(iter(reasons.values())))
    if condition.reason is not None:
        return reasons[condition.reason]
    inner = [_holds(one, reasons) for one in condition.inner]
    if condition.all is not None:
        return np.logical_and.reduce(inner)
    found = np.logical_or.reduce(inner)
    return ~found if condition.none is not None else found
