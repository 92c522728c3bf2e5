"""A rule in plain words, with its numbers."""

from __future__ import annotations

from ablation.plan.rules import ALL_COUNTS, Rule, StopRule

NAMES = {
    "correct": "correct rollouts",
    "clean": "clean rollouts",
    "truncated": "truncated rollouts",
    "looping": "looping rollouts",
    "truncated_or_looping": "truncated or looping rollouts",
    "no_answer": "rollouts without an answer",
    "logprob": "sampled-token logprob",
    "top20_entropy": "top-20 entropy",
    "top20_mass": "top-20 probability mass",
    "cjk_share": "CJK share of the thinking",
    "tokens_per_correct": "tokens per correct answer",
    "clean_length": "length of clean answers",
    "jointly_correct_length": "length of jointly correct answers",
    "agent_turn": "thinking per agent turn",
    "agent_tokens": "thinking over all agent turns",
    "total_tokens": "total tokens",
    "correct_rate": "share of correct rollouts",
    "periodic": "periodic loops",
    "strong": "strong loops",
    "valid_tool_call": "turns with a valid tool call",
    "invalid_tool_call": "turns with an invalid tool call",
    "full_compliance": "full compliances with a harmful request",
    "partial_compliance": "partial compliances with a harmful request",
    "over_refusal": "over-refusals",
    "injection_repeat": "answers that repeat an injected instruction",
    "missing_answer": "missing answers",
    "bad_plain": "bad answers to plain prompts",
    "visible_cjk": "answers with visible CJK",
    "unparsed": "answers that no rater could label",
    "truncated_or_looping_share": "share of truncated or looping rollouts",
    "nonfinite": "number of losses, gradients or logprobs that are not finite",
    "negative_share": "negative share of the absolute weight",
    "truncated_share": "truncated rollouts' share of the absolute weight",
    "kl_share": "KL term's share of the absolute weight",
    "mismatch_mean": "mean absolute difference of trainer and sampler logprobs",
    "mismatch_p99": "99th percentile of the absolute difference of trainer and sampler logprobs",
    "mismatch_outside": "share of tokens whose ratio of trainer to sampler is more than 10% off 1",
    "mismatch_k3": "KL divergence of trainer and sampler (k3)",
    "grad_norm": "norm of the gradient",
    "entropy": "top-20 entropy of the weighted tokens under the trainer",
}
UNITS = {
    "logprob": " nats per token",
    "top20_entropy": " nats",
    "total_tokens": " tokens",
    "mismatch_mean": " nats",
    "mismatch_p99": " nats",
    "mismatch_k3": " nats per token",
    "entropy": " nats",
}
_TEST = {"<": "below", "<=": "at most", ">": "above", ">=": "at least"}
_ENDS = {
    "ratio": "ratio to {}",
    "ratio_low": "lower end of the ratio's interval to {}",
    "ratio_high": "upper end of the ratio's interval to {}",
    "change_low": "lower end of the interval of the change against {}",
    "change_high": "upper end of the interval of the change against {}",
    "rate": "share of rollouts",
    "rate_low": "lower end of the interval of the share of rollouts",
    "rate_high": "upper end of the interval of the share of rollouts",
}


def rule_in_words(rule: Rule | StopRule, reference: str | None = None) -> str:
    """The sentence that makes `rule` true, for instance `lost 21 or more clean rollouts against the sweep`.

    `reference` is what a change or ratio is taken against; by default the sweep, for a stop rule update 1.
    """
    if reference is None:
        reference = "update 1" if isinstance(rule, StopRule) else "the sweep"
    name, unit, limit = NAMES[rule.measure], UNITS.get(rule.measure, ""), number(rule.limit)
    if rule.compare == "value":
        return f"{name} {_TEST[rule.op]} {limit}{unit}"
    if rule.compare != "change":
        return (
            f"{name}: {_ENDS[rule.compare].format(reference)} {_TEST[rule.op]} {limit}{unit if 'change' in rule.compare else ''}"
        )
    size = number(abs(rule.limit))
    down, up = rule.op in ("<", "<=") and rule.limit < 0, rule.op in (">", ">=") and rule.limit > 0
    if down or up:
        amount = f"{size} or more" if "=" in rule.op else f"more than {size}"
        if rule.measure in ALL_COUNTS:
            return f"{'lost' if down else 'gained'} {amount} {name} against {reference}"
        return f"{name} {'fell' if down else 'rose'} by {amount}{unit} against {reference}"
    if rule.limit == 0:
        return f"{name} {_TEST[rule.op]} {reference}'s"
    sign = "minus" if rule.limit < 0 else "plus"
    return f"{name} {_TEST[rule.op]} {reference}'s {sign} {size}{unit}"


def number(value: float | int) -> str:
    """A limit with all of its digits, and none more: `20`, `0.15`, `1.25`, `1e+300`."""
    return str(int(value)) if abs(value) < 1e16 and float(value).is_integer() else repr(value)
