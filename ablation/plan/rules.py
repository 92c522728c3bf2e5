"""Rules as data: a measure, a comparison, an operator and a limit."""

from __future__ import annotations

import operator
from typing import Literal

from pydantic import model_validator

from ablation.plan.resources import Resource
from ablation.plan.section import Name, PositiveInt, Section, Text, did_you_mean, refuse_any

Operator = Literal["<", "<=", ">", ">="]
OPERATORS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}

COUNT_MEASURES = ("correct", "clean", "truncated", "looping", "truncated_or_looping", "no_answer")
VALUE_MEASURES = (
    "logprob",
    "top20_entropy",
    "top20_mass",
    "cjk_share",
    "tokens_per_correct",
    "clean_length",
    "agent_turn",
    "total_tokens",
)
MEASURES = COUNT_MEASURES + VALUE_MEASURES
RATIO_MEASURES = ("tokens_per_correct", "clean_length", "jointly_correct_length", "agent_turn", "cjk_share")
MISMATCH_MEASURES = ("mismatch_mean", "mismatch_p99", "mismatch_outside", "mismatch_k3")
UPDATE_MEASURES = (
    *("logprob", "truncated_or_looping_share", "nonfinite", "negative_share", "truncated_share", "kl_share"),
    *MISMATCH_MEASURES,
    *("grad_norm", "entropy"),
)


class Rule(Section):
    """`measure` under `compare` against the reference, tested with `op limit`.

    compare: `value` = the subject's own number; `change` = subject minus reference (counts, nats);
    `ratio` = subject / reference; `ratio_low`, `ratio_high` = that end of the ratio's interval.
    The limit itself passes exactly when `op` is `<=` or `>=`. Numbers are compared as exact fractions.
    """

    name: Name
    """Named in verdicts and in the journal."""
    measure: Text
    """What is measured over a sweep or readout; see Measures."""
    compare: Literal["value", "change", "ratio", "ratio_low", "ratio_high"]
    """The subject's own number, its change or ratio against the reference, or an end of the ratio's interval."""
    op: Operator
    """How the number must stand to the limit for the rule to hold; `<=` and `>=` include the limit."""
    limit: float | int
    """In the measure's unit; a whole number for counts. Compared exactly, as a fraction."""

    @model_validator(mode="after")
    def _known(self) -> Rule:
        known = RATIO_MEASURES if self.compare.startswith("ratio") else MEASURES
        if self.measure not in known:
            what = "has no ratio; measures with one" if self.measure in MEASURES else "is no measure; known"
            text = f"`{self.measure}` {what}: {', '.join(known)}{did_you_mean(self.measure, known)}"
            refuse_any([(("measure",), text)])
        whole = isinstance(self.limit, int) or self.limit.is_integer()
        if self.measure in COUNT_MEASURES and self.compare in ("value", "change") and not whole:
            refuse_any([(("limit",), f"found {self.limit}; `{self.measure}` is a count, so its limit is a whole number")])
        return self


class StopRule(Section):
    """Ends a run when `measure` of an update meets `op limit`; `change` is against update 1 of the same run."""

    name: Name
    """Named in verdicts and in the journal."""
    measure: Text
    """What is measured at an update; see Measures of an update."""
    compare: Literal["value", "change"] = "value"
    """The update's own number, or its change against update 1 of the same run."""
    op: Operator
    """How the number must stand to the limit for the run to end."""
    limit: float | int
    """In the measure's unit."""

    @model_validator(mode="after")
    def _known(self) -> StopRule:
        if self.measure not in UPDATE_MEASURES:
            known = ", ".join(UPDATE_MEASURES)
            text = f"`{self.measure}` is not measured at an update; known: {known}{did_you_mean(self.measure, UPDATE_MEASURES)}"
            refuse_any([(("measure",), text)])
        return self


def rule_list_problems(rules: list, rollouts: int | None, at: tuple[str, ...]) -> list[tuple[tuple[str | int, ...], str]]:
    """Names used twice, and limits that no count of `rollouts` can meet (or that every count meets)."""
    problems: list[tuple[tuple[str | int, ...], str]] = []
    first: dict[str, int] = {}
    for index, rule in enumerate(rules):
        if first.setdefault(rule.name, index) != index:
            problems.append(((*at, index, "name"), f"two rules are called `{rule.name}`"))
        if rollouts is None or rule.measure not in COUNT_MEASURES or rule.compare not in ("value", "change"):
            continue
        low, high = (0, rollouts) if rule.compare == "value" else (-rollouts, rollouts)
        outcomes = {OPERATORS[rule.op](end, rule.limit) for end in (low, high)}
        if len(outcomes) == 1:
            always = "always" if outcomes == {True} else "never"
            text = f"found {rule.limit}; with {rollouts} rollouts the number is {low} to {high}, so the rule {always} holds"
            problems.append(((*at, index, "limit"), text))
    return problems


class Replication(Section):
    """The control and the first stable arm in plan order, run again in the seeds of `family`."""

    control: Name
    """The arm that must be damaged in both families; the first in `arms`."""
    family: Name
    """The second family. The first one in `families` is the one that all arms run in."""


class BlindedRead(Section):
    """Pairs that both models solved on the same seed, one a problem; `passes` of `pairs` must pass."""

    pairs: PositiveInt
    """Pairs that a judge rates."""
    passes: PositiveInt
    """How many must pass at least."""

    @model_validator(mode="after")
    def _reachable(self) -> BlindedRead:
        if self.passes > self.pairs:
            refuse_any([(("passes",), f"found {self.passes} of {self.pairs} pairs, which cannot be reached")])
        return self


class HeldOut(Section):
    """Every rule must hold for a win; it is verified only by a passed blinded read."""

    rollouts: PositiveInt
    """Rollouts of each model in the stage."""
    rules: list[Rule]
    """All must hold, against the starting model on the same problems and seeds."""
    blinded_read: BlindedRead
    """What turns a win into a verified one."""
    problems: Resource | None = None
    """The held-out problems, named before training."""


class NeverUsed(Section):
    """Every rule must hold for `CONFIRMED`."""

    rollouts: PositiveInt
    """Rollouts of each model in the stage."""
    rules: list[Rule]
    """All must hold, against the starting model on the same problems and seeds."""
    problems: Resource | None = None
    """Problems that nobody ever sampled, trained on or evaluated: refused where the ledger has a mark of one."""
    near_duplicates: Literal["refuse", "allow"] = "refuse"
    """Whether a problem whose text is that of a used one but for its numbers counts as used, too."""


class Release(Section):
    """A win on the main set and every guard, or no release."""

    guards: list[Rule]
    """All must hold."""


class Verdict(Section):
    """How measures become labels."""

    damage: list[Rule]
    """A run is damaged if any of these holds against the sweep of its family."""
    replication: Replication
    """What is run again, and where."""
    held_out: HeldOut | None = None
    """Phase 2, only after `REPLICATED`: a win or not."""
    never_used: NeverUsed | None = None
    """Phase 2, after a verified win: confirmed or not."""
    release: Release | None = None
    """When a checkpoint may be released."""
