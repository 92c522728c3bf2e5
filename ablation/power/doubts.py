"""What a plan may say and hardly means: told when it is checked and locked, never refused."""

from __future__ import annotations

from ablation.plan.model import Plan
from ablation.plan.rules import OPERATORS, Rule
from ablation.plan.words import rule_in_words
from ablation.rollouts.loops import STRONG_WINDOWS


def doubts(plan: Plan) -> list[str]:
    """One line each: rules that call an arm damaged which equals its start, and loops that no thinking can hold."""
    own = (plan.extension.damage if plan.extension else None) or ()
    lists = {"verdict.damage": plan.verdict.damage, "extension.damage": own}
    lines = [
        f"{place}[{number}] ({rule.name}): an arm that equals its start is damaged by it ({rule_in_words(rule)}); "
        "is the sign or the operator the wrong one?"
        for place, rules in lists.items()
        for number, rule in enumerate(rules)
        if _holds_of_no_change(rule)
    ]
    loops, cap = plan.loops, plan.sampling.max_tokens
    needed = (STRONG_WINDOWS + 1) * loops.gram - 1
    if loops.novelty is None and needed > cap:
        lines.append(f"loops.gram: a strong loop needs {needed} tokens and a rollout has at most {cap}, so none is ever found")
    if loops.min_tokens > cap:
        lines.append(f"loops.min_tokens: a rollout has at most {cap} tokens, so no periodic loop is ever found")
    return lines


def _holds_of_no_change(rule: Rule) -> bool:
    same = {"change": 0, "ratio": 1}.get(rule.compare.partition("_")[0])
    return same is not None and OPERATORS[rule.op](same, rule.limit)
