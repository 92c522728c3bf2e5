"""What a plan has to be computed, part by part: rollouts, and tokens by the kind of pass that they go through."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ablation.plan.arms import Arm
from ablation.plan.cost import cost, update_sizes
from ablation.plan.extension import FIRST_STABLE, extension_family
from ablation.plan.model import Plan
from ablation.plan.prices import Tokens
from ablation.plan.runs import FIRST_STABLE_ARM, families_of, perhaps_again, planned_runs

PROMPT = 512
"""Tokens of a prompt where nothing better is known: a problem of a page with the chat template around it. Assumed."""


@dataclass(frozen=True)
class Work:
    """Tokens by the pass that computes them."""

    rollouts: int = 0
    prompts: int = 0
    """Of prompts, each rollout's computed by itself, before it is sampled."""
    sampled: int = 0
    scored: int = 0
    """Prompt and rollout in a forward pass alone: under the trainer (`clip`, `kl`) and under the start (`kl`)."""
    trained: int = 0
    """Prompt and rollout in a forward and backward pass."""

    def __add__(self, other: Work) -> Work:
        return Work(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))

    @property
    def billed(self) -> Tokens:
        """As a training service counts them."""
        return Tokens(prefill=self.prompts + self.scored, sample=self.sampled, train=self.trained)

    def as_json(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True)
class Part:
    """A sweep, or one run of an arm: its updates and its readout."""

    family: str
    name: str
    """`sweep`, an arm, or which arm it is where that is not known before the run."""
    updates: Work
    """Sampling, scoring and training of the updates; nothing of a sweep."""
    stages: Work
    """The sweep or the readout."""

    @property
    def work(self) -> Work:
        return self.updates + self.stages

    def as_json(self) -> dict[str, Any]:
        return {"family": self.family, "name": self.name, "work": self.work.as_json()}


def sampling(rollouts: int, prompt: int, length: float) -> Work:
    """Sampling that many rollouts of that length, each behind a prompt."""
    return Work(rollouts, rollouts * prompt, round(rollouts * length))


def training(arm: Arm, rollouts: int, prompt: int, length: float) -> Work:
    """The updates of an arm on that many rollouts: sampled, scored where the arm needs it, trained on."""
    if arm.trained_as_a_whole:
        return Work()
    whole = round(rollouts * (prompt + length))
    passes = (arm.clip is not None or arm.kl is not None) + (arm.kl is not None)
    return sampling(rollouts, prompt, length) + Work(scored=passes * whole, trained=whole * (arm.external is None))


def parts(plan: Plan, prompt: int = PROMPT, length: float | None = None) -> list[Part]:
    """Every sweep and run of the plan, in its order, with rollouts of `length` tokens; left out: of the cap, so the most.

    The second family's other arm is the first stable one, which nobody knows yet: the one that takes most stands for it.
    """
    length, rollouts = plan.sampling.max_tokens if length is None else length, plan.sweep_rollouts

    stages, updates = sampling(rollouts, prompt, length), {}
    for name, arm in plan.arms.items():
        updates[name] = training(arm, rollouts, prompt, length)
    again = max(perhaps_again(plan), key=lambda arm: _size(updates[arm]), default=None)
    runs, second = planned_runs(plan, again), plan.verdict.replication.family
    found = []
    for family in families_of(runs):
        found.append(Part(family, "sweep", Work(), stages))
        for arm in (arm for of, arm in runs if of == family):
            unknown = (family, arm) == (second, again)
            found.append(Part(family, FIRST_STABLE_ARM if unknown else arm, updates[arm], stages))
    return found


def later(plan: Plan, prompt: int = PROMPT, length: float | None = None) -> list[Part]:
    """What follows only after `REPLICATED`: the extension, and the sets of phase 2, as far as the plan counts their rollouts."""
    length, bound, found = plan.sampling.max_tokens if length is None else length, cost(plan), []
    extension = plan.extension
    if extension is not None:
        arms = [name for name in plan.arms if name in extension.arms]
        if extension.arms == FIRST_STABLE:
            arms = [name for name in plan.arms if name != plan.verdict.replication.control] or list(plan.arms)
        sizes = update_sizes(len(plan.cells), plan.training.updates)
        further = range(plan.training.updates, extension.updates)
        rollouts = plan.training.rollouts_per_cell * sum(sizes[update % len(sizes)] for update in further)
        checks = sampling(len(extension.checks) * plan.sweep_rollouts, prompt, length)
        family = extension_family(plan)
        each = [Part(family, f"extension of {arm}", training(plan.arms[arm], rollouts, prompt, length), checks) for arm in arms]
        if extension.arms == FIRST_STABLE:
            most = max(each, key=lambda part: _size(part.work))
            each = [Part(family, "extension of the first stable arm", most.updates, most.stages)]
        found += each
    if bound.phase2_rollouts:
        found.append(
            Part(
                plan.evaluation.family or plan.main_family,
                "sets of phase 2",
                Work(),
                sampling(bound.phase2_rollouts, prompt, length),
            )
        )
    return found


def total(found: list[Part]) -> Work:
    """All of it together."""
    return sum((part.work for part in found), Work())


def _size(work: Work) -> tuple[int, int]:
    return work.trained + work.scored + work.sampled, work.rollouts
