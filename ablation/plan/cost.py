"""What a plan takes at most: rollouts, tokens, and a rough time from a stated model."""

from __future__ import annotations

from dataclasses import dataclass

from ablation.plan.extension import FIRST_STABLE, eligible_checks
from ablation.plan.model import Plan
from ablation.plan.runs import families_of, perhaps_again, planned_runs

FLOPS_PER_THREAD = 1e10
"""Assumed useful rate of one CPU thread on small matrices, in floating-point operations per second."""
SAMPLE_FLOPS = 2
"""Operations per parameter and sampled token: one multiplication and one addition."""
TRAIN_FLOPS = 4
"""The same for a trained token: forward, and backward through a frozen base to the activations alone."""


@dataclass(frozen=True)
class Cost:
    """Upper bounds: every rollout at the token cap. Prompts are left out."""

    sweep_rollouts: int
    """All families' sweeps."""
    training_rollouts: int
    """All updates of all runs, the replication's included."""
    readout_rollouts: int
    phase2_rollouts: int
    """Held-out, never-used, main and selection sets, start and subjects; only if the study gets there. Agent states and safety
    prompts are counted in their files alone, so they are left out."""
    extension_rollouts: int
    """Further updates of the extended arms and their checks; only if the study gets there."""
    max_tokens: int

    @property
    def rollouts(self) -> int:
        """Rollouts of the runs (phase 2 and extension left out)."""
        return self.sweep_rollouts + self.training_rollouts + self.readout_rollouts

    @property
    def tokens(self) -> int:
        """Sampled tokens at most."""
        return self.rollouts * self.max_tokens

    @property
    def trained_tokens(self) -> int:
        """Tokens in a forward and backward pass at most."""
        return self.training_rollouts * self.max_tokens

    def seconds(self, parameters: int, flops: float) -> float:
        """Estimated time at `flops` operations per second."""
        return parameters * (SAMPLE_FLOPS * self.tokens + TRAIN_FLOPS * self.trained_tokens) / flops


def cost(plan: Plan) -> Cost:
    """All runs that the plan asks for, and a sweep for each family. The arm that is run again is the one that takes most."""
    here = {name for name, arm in plan.arms.items() if not arm.trained_as_a_whole}  # their updates are sampled here
    again = max(perhaps_again(plan), key=lambda arm: arm in here, default=None)
    runs = planned_runs(plan, again)
    release, extension = plan.verdict.release, plan.extension
    sections = (plan.verdict.held_out, plan.verdict.never_used, release and release.main)
    phase2 = [section.rollouts for section in sections if section is not None]
    if extension is not None and extension.selection is not None:
        phase2 += len(eligible_checks(extension)) * [extension.selection.rollouts]
    return Cost(
        sweep_rollouts=len(families_of(runs)) * plan.sweep_rollouts,
        training_rollouts=sum(arm in here for _, arm in runs) * plan.sweep_rollouts,  # the updates of a run take every cell once
        readout_rollouts=len(runs) * plan.sweep_rollouts,
        phase2_rollouts=2 * sum(phase2),
        extension_rollouts=_extension_rollouts(plan),
        max_tokens=plan.sampling.max_tokens,
    )


def _extension_rollouts(plan: Plan) -> int:
    extension = plan.extension
    if extension is None:
        return 0
    arms = 1 if extension.arms == FIRST_STABLE else len(extension.arms)
    sizes = update_sizes(len(plan.cells), plan.training.updates)
    further = range(plan.training.updates, extension.updates)
    updates = plan.training.rollouts_per_cell * sum(sizes[k % len(sizes)] for k in further)
    return arms * (updates + len(extension.checks) * plan.sweep_rollouts)


def base_bytes(plan: Plan) -> int:
    """Memory of the base weights alone, in bytes: what a machine needs at the very least."""
    return plan.model.parameters * (2 if plan.model.dtype == "bfloat16" else 4)


def default_flops(plan: Plan) -> float:
    """Assumed rate of the plan's own CPU threads, in operations per second."""
    return FLOPS_PER_THREAD * plan.policy.threads


def update_sizes(cells: int, updates: int) -> list[int]:
    """Sizes of the updates when `cells` are dealt over them as evenly as they go, larger ones first."""
    small, larger = divmod(cells, updates)
    return [small + 1] * larger + [small] * (updates - larger)
