"""The plan: everything that could move a result, in one typed, closed, frozen object."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from ablation.plan.arms import Arm, Training
from ablation.plan.engines import Policy
from ablation.plan.extension import Extension, extension_problems
from ablation.plan.judging import Verdict, verdict_problems
from ablation.plan.phase2 import Evaluation
from ablation.plan.prices import Prices
from ablation.plan.resources import Model, Resource
from ablation.plan.rules import StopRule, rule_list_problems
from ablation.plan.section import (
    MOST_EFFORTS,
    Count,
    Name,
    NonNegativeFloat,
    OpenShare,
    PositiveFloat,
    PositiveInt,
    Section,
    Seed,
    Share,
    Text,
    did_you_mean,
    refuse_any,
)

Problem = tuple[tuple[str | int, ...], str]
"""(path, what is wrong there)"""
LONGEST = 10_000_000
"""Tokens of a rollout."""
MOST_ROLLOUTS = 1_000_000
"""In one sweep or readout, which is held in memory as a whole when it is judged."""
START = "start"
"""The name of the starting model where an arm's name is expected."""
EVALUATIONS = "evaluations"
"""Where a run keeps comparisons, beside a folder for each family."""


class Sampling(Section):
    """How every rollout is sampled. The model folder's own defaults are ignored; what is not named here is neutral."""

    temperature: PositiveFloat = 1.0
    """Divides the logits."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Smallest probability mass that the tokens sampled from must hold; 1 means all tokens."""
    top_k: Count = 0
    """How many of the most likely tokens are sampled from; 0 means all."""
    max_tokens: int = Field(ge=1, le=LONGEST)
    """The cap on sampled tokens: a rollout that reaches it without an end token is truncated."""
    top_logprobs: int = Field(default=20, ge=1, le=100)
    """Most likely next tokens whose entropy and mass are stored."""
    batch_rollouts: PositiveInt = 128
    """Rollouts in a part of a stage, and those that the local backend samples together (vLLM takes all of a stage). In the plan
    because it can change the last bits of a logit."""


class Family(Section):
    """One set of sampling, shuffle and readout seeds."""

    seed: Seed
    """Every sampling, shuffle and readout seed of the family is a hash of this one and of what it is for."""


class Problems(Section):
    """The training problems and the cells made of them."""

    training: Resource
    """JSONL, one problem a line: id, source, prompt, grader, gold."""
    cells: Annotated[dict[Name, list[Text]], Field(max_length=MOST_EFFORTS)]
    """Effort -> problem ids. A cell is one problem at one effort, a name that the model's chat template knows."""

    @model_validator(mode="after")
    def _cells(self) -> Problems:
        problems: list[tuple[tuple[str | int, ...], str]] = []
        for effort, ids in self.cells.items():
            first: dict[str, int] = {}
            for index, name in enumerate(ids):
                if first.setdefault(name, index) != index:
                    problems.append((("cells", effort, index), f"cell `{name}@{effort}` is listed twice"))
        if not any(self.cells.values()):
            problems.append((("cells",), "there is no cell"))
        refuse_any(problems)
        return self


class Loops(Section):
    """When thinking counts as looping; `rollouts.loops` has the definitions."""

    later: ClassVar[frozenset[str]] = frozenset({"novelty"})

    min_repeats: int = Field(default=3, ge=1, le=1_000_000)
    """Periodic loop: a periodic loop repeats its unit of p tokens at least max(min_repeats, 2 + short_unit / p^2) times."""
    short_unit: NonNegativeFloat = 48.0
    """How many more repeats a short unit needs, see `min_repeats`."""
    min_tokens: int = Field(default=16, ge=1, le=1_000_000)
    """A periodic loop covers at least this many tokens."""
    gram: int = Field(default=8, ge=1, le=1_000_000)
    """Strong loop: tokens in a window. Counted is the share of windows that occurred before in the same thinking."""
    repeated_share: Share = 0.6
    """Strong loop: that share is at least this."""
    novelty: OpenShare | None = None
    """Strong loop, read from the text in place of windows: fewer than this share of the last 200 words say anything new. A
    counter in a sentence that comes again is seen through, and the tokenizer does not matter; 0.15 is a good value."""

    @model_validator(mode="after")
    def _one_strong_loop(self) -> Loops:
        unread = [name for name in ("gram", "repeated_share") if getattr(self, name) != type(self).model_fields[name].default]
        refuse_any([((name,), f"is not read beside `novelty: {self.novelty}`") for name in unread if self.novelty is not None])
        return self


class Statistics(Section):
    """How intervals are made: over cells (held-out: over problems)."""

    level: OpenShare = 0.90
    """Coverage of every interval."""
    method: Literal["percentile", "expanded", "t"] = "percentile"
    """How intervals of ratios and changes are made: a percentile bootstrap, one expanded for few clusters, or t over clusters."""
    resamples: int = Field(default=10000, ge=1, le=1_000_000)
    """Bootstrap samples of one interval."""
    seed: Seed = 0
    """Seed of the bootstrap."""
    min_clusters: PositiveInt = 10
    """With fewer clusters there is no bootstrap interval; see `few_clusters`."""
    few_clusters: Literal["undecided", "t"] = "undecided"
    """What an end of an interval is with fewer clusters than that: undecided, or that of a t interval over the clusters."""
    estimand: Literal["pooled", "mean_of_clusters"] = "pooled"
    """What a rate is: what is counted of all rollouts, or the mean over clusters of each one's share."""


class Plan(Section):
    """A pre-registered ablation."""

    ablation: Literal[1]
    """Version of the plan language."""
    name: Name
    """Name of the study, and of its run folder."""
    question: Text
    """What the study decides."""
    model: Model
    """What every arm starts from."""
    policy: Policy = Field(default_factory=Policy)
    """What samples and trains."""
    sampling: Sampling
    """How every rollout is sampled."""
    problems: Problems
    """Training problems and cells."""
    training: Training
    """What all arms share."""
    arms: dict[Name, Arm]
    """In plan order: the control first."""
    families: dict[Name, Family]
    """The first family is the one in which every arm runs."""
    stop_rules: list[StopRule]
    """A rule that fires ends its run; may be empty."""
    loops: Loops = Field(default_factory=Loops)
    """When thinking counts as looping."""
    verdict: Verdict
    """How measures become labels."""
    statistics: Statistics = Field(default_factory=Statistics)
    """How intervals are made."""
    extension: Extension | None = None
    """Phase 2, only after `REPLICATED`: more updates of an arm."""
    evaluation: Evaluation = Field(default_factory=Evaluation)
    """How a finished model and the start are sampled to be compared in phase 2."""
    prices: Prices | None = None
    """What work costs, for `plan show` and the report; it decides nothing."""

    @property
    def repeated_arms(self) -> list[tuple[str, str]]:
        """(arm, earlier arm) where the two train alike: with one set of seeds they would be one run twice."""
        seen: dict[str, str] = {}
        pairs = []
        for name, arm in self.arms.items():
            first = seen.setdefault(arm.same_as, name)
            if first != name:
                pairs.append((name, first))
        return pairs

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
        refuse_any(cross_problems(self))
        return self


def cross_problems(plan: Plan) -> list[Problem]:
    """What is wrong between sections that are right one by one."""
    problems: list[Problem] = []
    replication = plan.verdict.replication
    problems += name_problems(replication.control, replication.family, plan.arms, plan.families)
    context = plan.policy.vllm.context if plan.policy.vllm is not None else None
    if context is not None and context <= plan.sampling.max_tokens:
        at = ("policy", "vllm", "context")
        problems.append((at, f"found {context}; a prompt and `sampling.max_tokens` ({plan.sampling.max_tokens}) need more"))
    if START in plan.arms:
        problems.append((("arms", START), f"`{START}` is the starting model's name and cannot be an arm's"))
    for name in plan.families:
        if name.lower() == EVALUATIONS:
            problems.append((("families", name), f"`{name}` is the run folder's place for comparisons; take another name"))
    folded: dict[str, str] = {}
    for section, names in (("arms", plan.arms), ("families", plan.families)):
        folded.clear()
        for name in names:
            other = folded.setdefault(name.lower(), name)
            if other != name:
                problems.append(((section, name), f"`{name}` and `{other}` are one folder where names ignore case; rename one"))
    seeds: dict[int, str] = {}
    for name, family in plan.families.items():
        other = seeds.setdefault(family.seed, name)
        if other != name:
            problems.append((("families", name, "seed"), f"found {family.seed}, which is family `{other}`'s; each needs its own"))
    if plan.training.updates > len(plan.cells):
        text = f"found {plan.training.updates} updates of {len(plan.cells)} cells, so an update would have none"
        problems.append((("training", "updates"), text))
    if plan.training.s0 != "sweep" and plan.training.s0 > LONGEST:
        problems.append(
            (("training", "s0"), f"found the number {plan.training.s0:g}; it is a length in tokens, at most {LONGEST:,}")
        )
    rollouts = plan.sweep_rollouts
    if rollouts > MOST_ROLLOUTS:
        at = ("training", "rollouts_per_cell")
        problems.append((at, f"makes {rollouts:,} rollouts in one sweep; at most {MOST_ROLLOUTS:,} can be judged together"))
    problems += rule_list_problems(plan.stop_rules, None, ("stop_rules",))
    return problems + verdict_problems(plan, START) + extension_problems(plan)


def name_problems(control: str, family: str, arms: Collection[str], families: Collection[str]) -> list[Problem]:
    """What is wrong with the two names that the replication is of; they are looked at beside what is wrong elsewhere, too."""
    problems: list[Problem] = []
    at = ("verdict", "replication")
    if not arms:
        problems.append((("arms",), "there is no arm"))
    elif control not in arms:
        text = f"there is no arm `{control}`; arms: {', '.join(arms)}{did_you_mean(control, arms)}"
        problems.append(((*at, "control"), text))
    elif next(iter(arms)) != control:
        problems.append((("arms", control), f"the control `{control}` must be listed first"))
    if family not in families:
        text = f"there is no family `{family}`; families: {', '.join(families)}{did_you_mean(family, families)}"
        problems.append(((*at, "family"), text))
    elif family == next(iter(families)):
        problems.append(((*at, "family"), f"`{family}` is the first family; the replication needs another one"))
    return problems
