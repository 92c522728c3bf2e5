"""An arm as a formula and in plain words; `training.weights` is what computes it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from ablation.plan.arms import Adam, Arm, KLAnchor, Reward, Training
from ablation.plan.external import external_in_words
from ablation.plan.weightings import WEIGHTINGS
from ablation.plan.words import number

_MEAN = "its reward minus the mean reward of its group (the rollouts of one cell)"
_ADVANTAGES = {"mean": _MEAN, "leave_one_out": "its reward minus the mean reward of its group's others", "none": "its reward"}
_STD = ", divided by the standard deviation (n − 1) of the group's rewards"
_LENGTHS = {
    "thinking": "its thinking tokens and the token that closes them",
    "response": "its sampled tokens, the visible answer and the end token too",
}
_SYMBOLS = {
    "Lbar_g": "the group's mean L_i",
    "L_g": "the sum of the group's L_i",
    "Lbar": "the update's mean L_i",
    "R": "rollouts of the update",
    "G": "groups of the update",
    "max_tokens": "the plan's cap on sampled tokens",
    "H_t": "the sampler's entropy at the token in nats",
    "tau": "what the fifth of the update's tokens with the highest H_t reach",
    "logp": "the token's log-probability in nats",
    "c": "0 for a token that the clip leaves without gradient, else 1",
}
_OF_LOSS = {"Lbar_g", "L_g", "Lbar", "R", "G"}
"""Letters that are a mean, a sum or a number of the rollouts in the loss."""
OUTSIDE = "what the arm's own command makes of it"
"""In place of a formula, for an arm that is trained by a command."""
ADVANTAGE_SHORT = {"mean": "r_i − mean(r)", "leave_one_out": "r_i − mean(other r)", "none": "r_i"}


def arm_formula(arm: Arm) -> str:
    """The weight of one weighted token of rollout i, as arithmetic; ±: plus for a finished rollout, minus for a truncated one."""
    if arm.weighting is None:
        return OUTSIDE
    text = _spread(arm)
    if arm.advantages == "positive":
        text = text.replace("A_i", "max(A_i, 0)")
    if arm.finish_push:
        text += f" ± {number(arm.finish_push)} × s0 / L_i"
    if arm.clip is not None:
        text = f"c × ({text})" if arm.finish_push else f"c × {text}"
    if arm.kl is None:
        return text
    return f"max({text} − {_pull(arm, arm.kl)}, 0)" if arm.kl.damp_only else f"{text} − {_pull(arm, arm.kl)}"


def advantage_formula(arm: Arm) -> str:
    """A_i of a rollout with the reward r_i, as arithmetic over the rewards r of its group."""
    if arm.weighting is None:
        return OUTSIDE
    text = ADVANTAGE_SHORT[arm.baseline]
    return f"({text}) / std(r)" if arm.scale == "std" else text


def _spread(arm: Arm) -> str:
    assert arm.weighting is not None
    return WEIGHTINGS[arm.weighting].formula.replace("*", "×")


def _pull(arm: Arm, kl: KLAnchor) -> str:
    moved = "logp − logp_start" if kl.estimator == "k1" else "1 − exp(logp_start − logp)"
    moved = f"max({moved}, 0)" if kl.damp_only else f"({moved})"
    unit = f"{_spread(arm).removeprefix('A_i × ')} × " if kl.unit == "advantage" else ""
    return f"{number(kl.beta)} × {unit}{moved}"


def symbols(arms: Iterable[Arm]) -> str:
    """What the letters in the formulas of `arms` mean."""
    arms = [arm for arm in arms if arm.weighting is not None]
    if not arms:
        return ""
    advantages = {(arm.baseline, arm.scale) for arm in arms}
    baseline, scale = advantages.pop() if len(advantages) == 1 else ("", "")
    advantage = _ADVANTAGES.get(baseline, "its reward against the arm's baseline") + (_STD if scale == "std" else "")
    tokens = {arm.tokens for arm in arms}
    length = " or ".join(text for name, text in _LENGTHS.items() if name in tokens) + (
        ", as the arm says" if len(tokens) > 1 else ""
    )
    found = [f"A_i: a rollout's advantage, {advantage}.", f"L_i: {length}."]
    used = {word for arm in arms for word in re.findall(r"[A-Za-z]\w*", arm_formula(arm))}
    found += [f"{name}: {text}." for name, text in _SYMBOLS.items() if name in used]
    of_loss = [arm for arm in arms if arm.truncated in ("apart", "mask") or arm.no_signal == "drop"]
    if any(_OF_LOSS & set(re.findall(r"\w+", arm_formula(arm))) for arm in of_loss):
        found.append("Rollouts out of the loss count in no mean, sum or number of L_i.")
    if "response" not in tokens:
        found.append("The visible answer never carries weight.")
    return " ".join(found)


def arm_in_words(arm: Arm, training: Training | None) -> list[str]:
    """Sentences that say how the arm weighs a rollout, and where it departs from what `training` says for all."""
    return [*_weights_in_words(arm), *(_departures(arm, training) if training is not None else _own(arm))]


def _weights_in_words(arm: Arm) -> Iterator[str]:
    if arm.external is not None:
        yield from external_in_words(arm.external)
        return
    assert arm.weighting is not None
    yield WEIGHTINGS[arm.weighting].words
    if arm.tokens == "response":
        yield "All sampled tokens carry weight, the visible answer and the end token too."
    if (arm.baseline, arm.scale) != ("mean", "none"):
        yield f"Its advantage is {_ADVANTAGES[arm.baseline]}{_STD if arm.scale == 'std' else ''}."
    baseline = {"mean": "the group's mean reward", "leave_one_out": "the others' mean reward"}.get(arm.baseline)
    if arm.truncated == "apart":
        yield f"Truncated rollouts {f'leave {baseline} and ' if baseline else ''}have no advantage."
    if arm.truncated == "mask":
        yield f"Truncated rollouts {f'count in {baseline}, but ' if baseline else ''}carry no weight."
    if arm.truncated == "penalize":
        yield f"A truncated rollout loses {number(arm.truncation_penalty or 0.0)} of its reward."
    if arm.no_signal == "drop":
        yield "A group whose rewards are all equal leaves every mean over the update and carries no weight of any kind."
    if arm.finish_push:
        push = number(arm.finish_push)
        yield f"Each finished rollout gets {push} of s0 on top, each truncated one has as much taken off."
    if arm.clip is not None:
        low, high = number(round(1 - arm.clip.low, 12)), number(round(1 + arm.clip.high, 12))
        yield (
            f"A token with a positive weight counts for nothing where the trainer finds it more than {high} times as likely as "
            f"the sampler did, one with a negative weight where it is less than {low} times."
        )
    if arm.kl is not None:
        untouched = " but those of truncated rollouts" if arm.truncated in ("apart", "mask") and not arm.finish_push else ""
        yield f"Every token{untouched} is pulled toward the start by {_pull_in_words(arm.kl)}."
    if arm.advantages == "positive":
        below = "below their group's mean reward" if arm.baseline == "mean" else "with a negative advantage"
        yield f"Rollouts {below} have no weight."


def _pull_in_words(kl: KLAnchor) -> str:
    moved = "per nat that it moved" if kl.estimator == "k1" else "times 1 − exp(−d) where it moved by d nats"
    spread = ", spread over tokens as an advantage of that size would be" if kl.unit == "advantage" else ""
    shrink = ", which can only shrink its weight" if kl.damp_only else ""
    return f"{number(kl.beta)} {moved}{spread}{shrink}"


def _departures(arm: Arm, training: Training) -> Iterator[str]:
    if arm.learning_rate is not None and arm.learning_rate != training.learning_rate:
        yield f"Its learning rate is {number(arm.learning_rate)}, not {number(training.learning_rate)}."
    for what, own, common in (
        ("reward", training.reward_of(arm), training.reward),
        ("optimizer", training.optimizer_of(arm), training.optimizer),
    ):
        changed = [
            f"{name.replace('_', ' ')} {_plain(value)}, not {_plain(getattr(common, name))}"
            for name, value in own.model_dump().items()
            if value != getattr(common, name)
        ]
        if changed:
            yield f"Its {what} has {'; '.join(changed)}."


def _own(arm: Arm) -> Iterator[str]:
    """The arm's own values, where no plan is at hand that they depart from."""
    if arm.learning_rate is not None:
        yield f"Its learning rate is {number(arm.learning_rate)}."
    for what, own in (("reward", arm.reward), ("optimizer", arm.optimizer)):
        values = {} if own is None else own.model_dump(exclude_none=True)
        if values:
            shown = ", ".join(f"{name.replace('_', ' ')} {_plain(value)}" for name, value in values.items())
            yield f"Its {what} has {shown}."


def _plain(value: Any) -> str:
    return number(value) if isinstance(value, (int, float)) else "none" if value is None else str(value)


def reward_in_words(reward: Reward) -> str:
    """What a rollout earns, before an arm's own terms."""
    bonus = f" + {number(reward.length_bonus)} × clip((L_ref − L) / L_ref, −1, 1)"
    bonus += ", with L_ref the cell's mean clean length in the sweep"
    loops = f"; less {number(reward.loop_penalty)} for one that loops" if reward.loop_penalty else ""
    return f"0 unless a rollout is correct, finished and free of loops; then 1{bonus if reward.length_bonus else ''}{loops}"


def optimizer_in_words(adam: Adam) -> str:
    """What of the optimizer a reader cannot take for granted."""
    name = {"adam": "Adam", "adamw": "AdamW"}[adam.name]
    moments = {"fresh": "empty moments", "start": "the start adapter's moments"}
    parts = [f"{name} from {moments[adam.state]}"]
    if adam.weight_decay:
        parts.append(f"weight decay {number(adam.weight_decay)}")
    if adam.max_grad_norm is not None:
        parts.append(f"gradients of norm {number(adam.max_grad_norm)} at most")
    return ", ".join(parts)
