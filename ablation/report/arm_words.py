"""An arm as a formula and in plain words; `training.weights` is what computes it."""

from __future__ import annotations

from ablation.plan.arms import Arm, Training
from ablation.plan.words import number

SYMBOLS = (
    "A_i: a rollout's advantage, its reward minus the mean reward of its group (the rollouts of one cell). "
    "L_i: its thinking tokens and the token that closes them. Lbar_g: the group's mean L_i. "
    "logp: the token's log-probability in nats. The visible answer never carries weight."
)


def arm_formula(arm: Arm) -> str:
    """The weight of one thinking token of rollout i. The push is plus for a finished rollout, minus for a truncated one."""
    advantage = "max(A_i, 0)" if arm.advantages == "positive" else "A_i"
    text = f"{advantage} × s0 / {'L_i' if arm.weighting == 'rollout' else 'Lbar_g'}"
    if arm.finish_push:
        text += f" ± {number(arm.finish_push)} × s0 / L_i"
    if arm.kl is not None:
        text += f" − {number(arm.kl.beta)} × (logp − logp_start)"
    return text


def arm_in_words(arm: Arm, training: Training) -> list[str]:
    """Sentences that say how the arm weighs a rollout."""
    if arm.weighting == "rollout":
        lines = ["A rollout's total weight is its advantage, whatever its length."]
    else:
        lines = ["A rollout's total weight is its advantage times its length against its group's mean: long rollouts weigh more."]
    if arm.truncated == "apart":
        lines.append("Truncated rollouts leave the group's mean reward and have no advantage.")
    if arm.finish_push:
        push = number(arm.finish_push)
        lines.append(f"Each finished rollout gets {push} of s0 on top, each truncated one has as much taken off.")
    if arm.kl is not None:
        lines.append(
            f"Every token is pulled toward the start by {number(arm.kl.beta)} per nat that it moved"
            + (", which can only shrink its weight." if arm.kl.damp_only else ".")
        )
    if arm.advantages == "positive":
        lines.append("Rollouts below their group's mean reward have no weight.")
    if arm.learning_rate is not None and arm.learning_rate != training.learning_rate:
        lines.append(f"Its learning rate is {number(arm.learning_rate)}, not {number(training.learning_rate)}.")
    return lines
