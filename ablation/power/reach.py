"""Every rule can fire and can pass: shown on made-up figures, with the judges that decide the study.

For each rule, figures are made up over the whole range of what a stage of this plan can measure, its limit and its neighbours
among them. A rule that holds for all of them, or for none, or that can never be tested, decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ablation.measures.bootstrap import Estimate
from ablation.measures.measure import measure
from ablation.plan.measures import ALL, Sizes
from ablation.plan.model import Plan
from ablation.plan.phase2 import Guard, guard_set
from ablation.plan.rules import Rule, StopRule
from ablation.plan.words import number
from ablation.rollouts.outcomes import Outcomes
from ablation.verdict.exact import exact
from ablation.verdict.figures import figures_of
from ablation.verdict.rules import Figures, judge

StopJudge = Callable[[list[StopRule], list[dict[str, Any]]], dict[str, Any] | None]
"""`training.stops.fired_rule`."""


@dataclass(frozen=True)
class Reach:
    """What made-up figures do to one rule."""

    place: tuple[str | int, ...]
    """Where the rule stands in the plan."""
    name: str
    holds_at: float | None
    """The number nearest to the limit for which the rule holds; None if there is none."""
    fails_at: float | None
    problem: str | None
    """Why it decides nothing; None if it can do both."""
    between: str | None = None
    """What its limit comes to, if it is a share that no whole number of rollouts makes."""

    @property
    def group(self) -> str:
        """The list that the rule is in: `stop_rules`, `damage`, `extension`, `selection` or a section of the verdict."""
        if "main" in self.place or "selection" in self.place:
            return "main" if "main" in self.place else "selection"
        return str(self.place[1] if self.place[0] == "verdict" else self.place[0])

    def as_json(self) -> dict[str, Any]:
        content = {"rules": self.group, "name": self.name, "holds_at": self.holds_at, "does_not_hold_at": self.fails_at}
        return content | {"problem": self.problem, "between": self.between}


def reach(plan: Plan, stop_judge: StopJudge) -> list[Reach]:
    """Every rule of the plan, on made-up figures."""
    found = [_stop_rule(plan, rule, ("stop_rules", place), stop_judge) for place, rule in enumerate(plan.stop_rules)]
    own = (plan.extension.damage if plan.extension else None) or ()
    measured = _what_stages_measure(plan, [*plan.verdict.damage, *own])
    found += [
        _rule(plan, rule, ("verdict", "damage", place), plan.sweep_rollouts, measured)
        for place, rule in enumerate(plan.verdict.damage)
    ]
    for name in ("held_out", "never_used"):
        section = getattr(plan.verdict, name)
        for place, rule in enumerate(section.rules if section else ()):
            found.append(_rule(plan, rule, ("verdict", name, "rules", place), section.rollouts, None))
    main = plan.verdict.release.main if plan.verdict.release else None
    for place, rule in enumerate(main.rules if main else ()):
        found.append(_rule(plan, rule, ("verdict", "release", "main", "rules", place), main.rollouts, None))
    for place, rule in enumerate(plan.verdict.release.guards if plan.verdict.release else ()):
        found.append(_rule(plan, rule, ("verdict", "release", "guards", place), _guarded(plan, rule), None))
    for place, rule in enumerate(own):
        found.append(_rule(plan, rule, ("extension", "damage", place), plan.sweep_rollouts, measured))
    selection = plan.extension.selection if plan.extension else None
    for place, rule in enumerate(selection.require if selection else ()):
        found.append(_rule(plan, rule, ("extension", "selection", "require", place), selection.rollouts, None))
    return found


def _guarded(plan: Plan, guard: Guard) -> int | None:
    """Rollouts of each model on the guard's set; None where the set's file says how many items there are."""
    release, where = plan.verdict.release, guard_set(guard)
    section = (release and release.main) if where == "main" else getattr(plan.verdict, where, None)
    return None if section is None else section.rollouts


def _rule(plan: Plan, rule: Rule, place: tuple[str | int, ...], rollouts: int | None, measured: Figures | None) -> Reach:
    """`measured` is a sample of what a stage yields, None where figures may come from elsewhere."""
    kind = rule.compare.partition("_")[0]
    if kind == "ratio":
        low, high = (0.0 if ALL[rule.measure].high == 1.0 else math.ulp(0.0)), math.inf  # a share can be nothing, a length cannot
    else:
        low, high = (0.0, 1.0) if kind == "rate" else _range(plan, rule.measure, rollouts)
    if kind == "change":
        low, high = low - high, high - low
    if measured is not None and judge(rule, measured).holds is None:
        why = judge(rule, measured).reason
        problem = f"`{rule.measure}` under `{rule.compare}` can never be said from the rollouts of this plan: {why}"
        return Reach((*place, "measure"), rule.name, None, None, problem)
    shares = (
        rollouts if rule.compare in ("rate", "value", "change") and (kind == "rate" or rule.measure == "correct_rate") else None
    )
    candidates = _candidates(rule, low, high, shares)
    found = [(value, judge(rule, _figures(plan, rule, value, rollouts)).holds) for value in candidates]
    one = _reach(rule, place, found, low, high)
    return one if shares is None else replace(one, between=_between(rule, one, shares))


def _between(rule: Rule, one: Reach, rollouts: int) -> str | None:
    if (exact(rule.limit) * rollouts).denominator == 1 or one.holds_at is None or one.fails_at is None:
        return None
    holds, fails = (f"{round(share * rollouts)} of {rollouts}" for share in (one.holds_at, one.fails_at))
    return f"{number(rule.limit)} lies between what {rollouts} rollouts can come to: it holds at {holds} and not at {fails}"


def _stop_rule(plan: Plan, rule: StopRule, place: tuple[str | int, ...], stop_judge: StopJudge) -> Reach:
    low, high = _range(plan, rule.measure, None)
    first_update = {rule.measure: min(max(0.0, low), high)}
    if rule.compare == "change" and stop_judge([rule], [first_update]) is not None:
        problem = f"found {number(rule.limit)}; at update 1 the change is 0, so the rule ends every run there"
        return Reach((*place, "limit"), rule.name, 0.0, None, problem)
    if rule.compare == "change":
        low, high = (low - high, high - low) if _changes(plan) else (0.0, 0.0)
    found = []
    for value in _candidates(rule, low, high):
        if rule.compare == "value":
            updates = [{rule.measure: value}]
        else:
            first, last = _pair(*_range(plan, rule.measure, None), value)
            updates = [{rule.measure: last}, {rule.measure: first}] if _changes(plan) else [first_update]
        found.append((value, stop_judge([rule], updates) is not None))
    return _reach(rule, place, found, low, high)


def _changes(plan: Plan) -> bool:
    """Whether a run has an update that is set against update 1; an extension's updates are, too."""
    return plan.training.updates > 1 or plan.extension is not None


def _reach(
    rule: Rule | StopRule, place: tuple[str | int, ...], found: list[tuple[float, bool | None]], low: float, high: float
) -> Reach:
    def nearest(wanted: bool) -> float | None:
        return min((value for value, held in found if held is wanted), key=lambda value: abs(value - rule.limit), default=None)

    holding, failing = nearest(True), nearest(False)
    problem = None
    if holding is None or failing is None:
        always = "always" if failing is None else "never"
        problem = f"found {number(rule.limit)}; the number is {_span(low, high)}, so the rule {always} holds and decides nothing"
        if low == high == 0 and rule.compare == "change":
            problem += " (with one update there is nothing to set against update 1: leave the rule out, or plan two updates)"
    return Reach((*place, "limit"), rule.name, holding, failing, problem)


def _span(low: float, high: float) -> str:
    if math.isinf(low) and math.isinf(high):
        return "any number"
    if math.isinf(high):
        return "above 0" if low == math.ulp(0.0) else f"{number(low)} or more"
    return f"{number(high)} or less" if math.isinf(low) else f"{number(low)} to {number(high)}"


def _range(plan: Plan, measure: str, rollouts: int | None) -> tuple[float, float]:
    """Lowest and highest number of a measure that a stage of `rollouts` (None: not known) or an update can have."""
    kl = any(arm.kl for arm in plan.arms.values())
    known = {} if rollouts is None else {"rollouts": rollouts}
    return ALL[measure].range(Sizes(**known, cap=plan.sampling.max_tokens, top_logprobs=plan.sampling.top_logprobs, kl=kl))


def _candidates(rule: Rule | StopRule, low: float, high: float, shares: int | None = None) -> list[float]:
    """Numbers to try: the limit, its neighbours and the ends of the range. `shares`: only so many-ths of one are possible."""
    if shares is not None:
        around = [math.floor(rule.limit * shares) + step for step in (-1, 0, 1, 2)]
        return [low, *(count / shares for count in around if low <= count / shares <= high), high]
    whole = ALL[rule.measure].whole and rule.compare in ("value", "change")
    step = 1 if whole else max(abs(rule.limit) / 10, 0.01)
    wanted = [rule.limit, rule.limit - step, rule.limit + step, low, high]
    if whole:
        wanted += [math.floor(rule.limit), math.ceil(rule.limit)]
        wanted = [value for value in wanted if math.isinf(value) or float(value).is_integer()]
    return [int(value) if whole else value for value in wanted if low <= value <= high and math.isfinite(value)]


def _figures(plan: Plan, rule: Rule, value: float, rollouts: int | None) -> Figures:
    """Figures for which the rule tests `value`."""
    kind, _, end = rule.compare.partition("_")
    if end or kind == "ratio" or kind == "rate":
        ends = {"": 1.0, "low": 0.9, "high": 1.1}
        around = {name: value if name == end else value / ends[end] * factor for name, factor in ends.items()}
        estimate = Estimate(around[""], around["low"], around["high"])
        return Figures(**{{"ratio": "ratios", "rate": "rates", "change": "intervals"}[kind]: {rule.measure: estimate}})
    if kind == "value":
        return Figures({rule.measure: value})
    subject, reference = _pair(*_range(plan, rule.measure, rollouts), value)
    return Figures({rule.measure: subject}, {rule.measure: reference})


def _pair(low: float, high: float, change: float) -> tuple[float, float]:
    """(subject, reference) in the range with this difference, one of them at an end of the range."""
    end = low if math.isfinite(low) else high
    up = end == low
    if (change >= 0) == up:
        return end + change, end
    return end, end - change


def _what_stages_measure(plan: Plan, rules: Sequence[Rule]) -> Figures:
    """What the real measures yield for two made-up stages on the plan's cells, in which every cell has a clean rollout."""
    made = _stage(plan, 40), _stage(plan, 50)
    settings = plan.statistics.model_copy(update={"resamples": 50})  # whether there is an interval does not depend on it
    return figures_of(rules, made, (measure(made[0]), measure(made[1])), settings)


def _stage(plan: Plan, length: int) -> Outcomes:
    cells = [cell for cell in plan.cells for _ in range(2)]
    count = len(cells)
    row = np.arange(count)
    no, zero = np.zeros(count, dtype=bool), np.zeros(count, dtype=np.int64)
    wrong = (row + length) % 3 == 0  # at most one of a cell's two, and in other cells of the other stage
    cut, strong = wrong & (row % 2 == 0), wrong & (row % 4 == 1)
    lengths = length + (row * length) % 7  # cells differ, so that an interval has a width
    return Outcomes(
        problem=np.array([problem for problem, _ in cells]),
        effort=np.array([effort for _, effort in cells]),
        source=np.full(count, "made up"),
        index=row % 2,
        correct=~wrong,
        no_answer=cut,
        extracted=np.full(count, "1", dtype=object),
        truncated=cut,
        finished=~cut,
        stopped_in_thinking=no,
        periodic=strong,
        strong=strong,
        loop_start=zero,
        loop_period=zero,
        loop_length=zero,
        repeated_share=zero.astype(float),
        thinking_length=lengths,
        weighted_length=lengths + 1,
        total_tokens=lengths + 3,
        logprob=-0.5 - (row * length) % 7 / 100,
        top_entropy=0.5 + (row * length) % 7 / 100,
        top_mass=0.9 - (row * length) % 7 / 100,
        cjk_share=0.1 + (row * length) % 7 / 100,
        redacted=no,
    )
