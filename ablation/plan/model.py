"""The plan: everything that could move a result, in one typed, closed, frozen object."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from ablation.plan.arms import Arm, Training
from ablation.plan.resources import Model, Resource
from ablation.plan.rules import StopRule, Verdict
from ablation.plan.section import Name, NonNegativeFloat, PositiveFloat, PositiveInt, Section, Seed, Share, Text

EFFORTS = ("low", "medium", "xhigh")
START = "start"
"""The name of the starting model where an arm's name is expected."""


class Sampling(Section):
    """How every rollout is sampled. The model folder's own defaults are ignored; what is not named here is neutral."""

    temperature: PositiveFloat = 1.0
    top_p: Share = 1.0
    top_k: int = Field(default=0, ge=0)
    """0 means all tokens."""
    max_tokens: PositiveInt
    """The cap on sampled tokens: a rollout that reaches it without an end token is truncated."""
    top_logprobs: int = Field(default=20, ge=1, le=100)
    """Most likely next tokens whose entropy and mass are stored."""
    batch_rollouts: PositiveInt = 128
    """Rollouts sampled together. In the plan because it can change the last bits of a logit."""


class Policy(Section):
    """What samples and trains."""

    backend: Literal["local"] = "local"
    threads: PositiveInt = 2
    """CPU threads: recorded and held fixed, because they order floating-point sums."""


class Family(Section):
    """One set of sampling, shuffle and readout seeds."""

    seed: Seed


class Problems(Section):
    """The training problems and the cells made of them."""

    training: Resource
    """JSONL, one problem a line: id, source, prompt, grader, gold."""
    cells: dict[str, list[Text]]
    """Effort -> problem ids. A cell is one problem at one effort."""

    @model_validator(mode="after")
    def _cells(self) -> Problems:
        for effort, ids in self.cells.items():
            if effort not in EFFORTS:
                raise ValueError(f"unknown effort `{effort}`; known: {', '.join(EFFORTS)}")
            repeated = sorted({name for name in ids if ids.count(name) > 1})
            if repeated:
                raise ValueError(f"effort `{effort}` lists {', '.join(repeated)} more than once")
        if not any(self.cells.values()):
            raise ValueError("there is no cell")
        return self


class Loops(Section):
    """When thinking counts as looping; `rollouts.loops` has the definitions."""

    min_repeats: PositiveInt = 3
    """A periodic loop repeats its unit of p tokens at least max(min_repeats, 2 + short_unit / p^2) times."""
    short_unit: NonNegativeFloat = 48.0
    min_tokens: PositiveInt = 16
    """Shorter repeats are no loop."""
    gram: PositiveInt = 8
    """Strong loop: the share of `gram`-token windows that occurred before in the same thinking..."""
    repeated_share: Share = 0.6
    """... is at least this."""


class Statistics(Section):
    """How intervals are made: percentile bootstrap over cells (held-out: over problems)."""

    level: Share = 0.90
    resamples: PositiveInt = 10000
    seed: Seed = 0
    min_clusters: PositiveInt = 10
    """With fewer clusters there is no interval."""


class Plan(Section):
    """A pre-registered ablation."""

    ablation: Literal[1]
    """Version of the plan language."""
    name: Name
    question: Text
    model: Model
    policy: Policy = Field(default_factory=Policy)
    sampling: Sampling
    problems: Problems
    training: Training
    arms: dict[Name, Arm]
    """In plan order: the control first."""
    families: dict[Name, Family]
    """The first family is the one in which every arm runs."""
    stop_rules: list[StopRule]
    loops: Loops = Field(default_factory=Loops)
    verdict: Verdict
    statistics: Statistics = Field(default_factory=Statistics)

    @property
    def cells(self) -> list[tuple[str, str]]:
        """(problem id, effort) of every cell, in plan order."""
        return [(problem, effort) for effort, ids in self.problems.cells.items() for problem in ids]

    @property
    def main_family(self) -> str:
        return next(iter(self.families))

    @property
    def sweep_rollouts(self) -> int:
        """Rollouts in one sweep or readout."""
        return len(self.cells) * self.training.rollouts_per_cell

    @model_validator(mode="after")
    def _cross_checks(self) -> Plan:
        replication = self.verdict.replication
        if replication.control not in self.arms:
            raise ValueError(f"verdict.replication.control: there is no arm `{replication.control}`")
        if next(iter(self.arms)) != replication.control:
            raise ValueError(f"arms: the control `{replication.control}` must be listed first")
        if START in self.arms:
            raise ValueError(f"arms: `{START}` is the starting model's name and cannot be an arm's")
        if replication.family not in self.families:
            raise ValueError(f"verdict.replication.family: there is no family `{replication.family}`")
        if replication.family == self.main_family:
            raise ValueError("verdict.replication.family: must be another family than the first one")
        seeds = [family.seed for family in self.families.values()]
        if len(set(seeds)) != len(seeds):
            raise ValueError("families: two families have the same seed")
        if self.training.updates > len(self.cells):
            raise ValueError("training.updates: more updates than cells, so an update would have none")
        return self
