"""What "looping" means, in the numbers of a plan: for whoever meets the mark on a rollout."""

from __future__ import annotations

from ablation.plan.model import Loops
from ablation.rollouts.loops import STRONG_WINDOWS
from ablation.rollouts.novelty import LAST


def percent(share: float) -> str:
    """A share as it is written in a plan: 0.6 is 60%, 0.625 is 62.5%."""
    return f"{round(100 * share, 6):g}%"


def periodic_words(loops: Loops) -> str:
    """When a loop counts as periodic."""
    short = f", a short one of p tokens 2 + {loops.short_unit:g} / p² times," if loops.short_unit else ""
    return f"one block of tokens at least {loops.min_repeats} times in a row{short} over at least {loops.min_tokens} tokens"


def strong_words(loops: Loops) -> str:
    """When a loop counts as strong."""
    if loops.novelty is not None:
        return f"fewer than {percent(loops.novelty)} of the last {LAST} words say anything new, whatever numbers they hold"
    return (
        f"at least {percent(loops.repeated_share)} of the windows of {loops.gram} tokens occurred before in the same thinking, "
        f"which has {STRONG_WINDOWS * loops.gram} of them or more"
    )


def strong_seen(loops: Loops, repeated_share: float, strong: bool) -> str:
    """What the strong check found in one rollout, beside its limit."""
    if loops.novelty is not None:
        return strong_words(loops) if strong else f"a strong loop: {strong_words(loops)}"
    share, limit = f"{100 * repeated_share:.1f}%", percent(loops.repeated_share)
    return f"{share} of windows of {loops.gram} tokens occurred before, {limit} or more are a {'' if strong else 'strong '}loop"


def looping_words(loops: Loops) -> str:
    """Both, as a sentence."""
    return f"Looping is periodic: {periodic_words(loops)}; or strong: {strong_words(loops)}."
