"""Rules as data: a measure, a comparison, an operator and a limit."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from ablation.plan.section import Name, Section, Text

Operator = Literal["<", "<=", ">", ">="]

COUNT_MEASURES = ("correct", "clean", "truncated", "looping", "truncated_or_looping", "no_answer")
VALUE_MEASURES = ("logprob", "top20_entropy", "top20_mass", "cjk_share", "tokens_per_correct", "clean_length", "agent_turn", "total_tokens")
MEASURES = COUNT_MEASURES + VALUE_MEASURES
RATIO_MEASURES = ("tokens_per_correct", "clean_length", "jointly_correct_length", "agent_turn", "cjk_share")
UPDATE_MEASURES = ("logprob", "truncated_or_looping_share", "nonfinite", "negative_share", "truncated_share", "kl_share")


class Rule(Section):
    """`measure` under `compare` against the reference, tested with `op limit`.

    compare: `value` = the subject's own number; `change` = subject minus reference (counts, nats);
    `ratio` = subject / reference; `ratio_low`, `ratio_high` = that end of the ratio's interval.
    The limit itself passes exactly when `op` is `<=` or `>=`. Numbers are compared as exact fractions.
    """

    name: Name
    measure: Text
    compare: Literal["value", "change", "ratio", "ratio_low", "ratio_high"]
    op: Operator
    limit: float | int

    @model_validator(mode="after")
    def _known(self) -> Rule:
        if self.compare.startswith("ratio"):
            if self.measure not in RATIO_MEASURES:
                raise ValueError(f"`{self.measure}` has no ratio; measures with one: {', '.join(RATIO_MEASURES)}")
        elif self.measure not in MEASURES:
            raise ValueError(f"unknown measure `{self.measure}`; known: {', '.join(MEASURES)}")
        if self.measure in COUNT_MEASURES and isinstance(self.limit, float) and not self.limit.is_integer():
            raise ValueError(f"`{self.measure}` is a count; its limit must be a whole number")
        return self


class StopRule(Section):
    """Ends a run when `measure` of an update meets `op limit`; `change` is against update 1 of the same run."""

    name: Name
    measure: Text
    compare: Literal["value", "change"] = "value"
    op: Operator
    limit: float | int

    @model_validator(mode="after")
    def _known(self) -> StopRule:
        if self.measure not in UPDATE_MEASURES:
            raise ValueError(f"`{self.measure}` is not measured at an update; known: {', '.join(UPDATE_MEASURES)}")
        return self


class Replication(Section):
    """The control and the first stable arm in plan order, run again in the seeds of `family`."""

    control: Name
    family: Name
    """The second family. The first one in `families` is the one that all arms run in."""


class BlindedRead(Section):
    """Pairs that both models solved on the same seed, one a problem; `passes` of `pairs` must pass."""

    pairs: int
    passes: int


class HeldOut(Section):
    """Every rule must hold for a win; it is verified only by a passed blinded read."""

    rollouts: int
    """Rollouts of each model in the stage."""
    rules: list[Rule]
    blinded_read: BlindedRead


class NeverUsed(Section):
    """Every rule must hold for `CONFIRMED`."""

    rollouts: int
    rules: list[Rule]


class Guard(Section):
    """A rule that a release must pass, over and above its win."""

    rule: Rule


class Release(Section):
    """A win on the main set and every guard, or no release."""

    guards: list[Rule]


class Verdict(Section):
    """How measures become labels."""

    damage: list[Rule]
    """A run is damaged if any of these holds against the sweep of its family."""
    replication: Replication
    held_out: HeldOut | None = None
    never_used: NeverUsed | None = None
    release: Release | None = None
