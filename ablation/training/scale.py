"""What an arm's rewards and weights are measured against: mean lengths of the starting model's rollouts."""

from __future__ import annotations

from collections.abc import Callable

from ablation.errors import IntegrityError
from ablation.plan.arms import Training
from ablation.rollouts.outcomes import Outcomes
from ablation.training.rewards import reference_lengths


def fixed_scale(training: Training, main_sweep: Callable[[], Outcomes]) -> float:
    """s0: the plan's number, or the mean thinking length (tokens) of the first family's untruncated sweep rollouts.

    Raises `IntegrityError` if it is to be measured and there is nothing to measure it on.
    """
    if training.s0 != "sweep":
        return float(training.s0)
    sweep = _with_thinking(main_sweep())
    lengths = sweep.thinking_length[~sweep.truncated]
    if not len(lengths) or not lengths.sum():
        raise IntegrityError(
            "every rollout of the sweep was truncated, so s0 cannot be measured", hint="Name training.s0 as a number."
        )
    return float(lengths.mean())


def sweep_reference(sweep: Outcomes) -> dict[str, float]:
    """Cell id -> mean clean thinking length (tokens) in the family's sweep; see `reference_lengths`."""
    return reference_lengths(_with_thinking(sweep).cell.tolist(), sweep.clean, sweep.thinking_length)


def _with_thinking(sweep: Outcomes) -> Outcomes:
    """`sweep`, whose lengths must be known: what was sampled elsewhere may have been imported without its thinking."""
    if sweep.redacted.any():
        raise IntegrityError("the sweep was imported without the thinking of some rollouts, so no length can be measured on it")
    return sweep
