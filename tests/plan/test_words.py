from __future__ import annotations

import pytest

from ablation.plan.rules import Rule, StopRule
from ablation.plan.words import rule_in_words


@pytest.mark.parametrize(
    ("measure", "compare", "op", "limit", "words"),
    [
        ("clean", "change", "<=", -21, "lost 21 or more clean rollouts against the sweep"),
        ("clean", "change", "<", -21, "lost more than 21 clean rollouts against the sweep"),
        ("looping", "change", ">=", 12, "gained 12 or more looping rollouts against the sweep"),
        ("logprob", "change", "<=", -0.15, "sampled-token logprob fell by 0.15 or more nats per token against the sweep"),
        ("logprob", "change", ">", 0.1, "sampled-token logprob rose by more than 0.1 nats per token against the sweep"),
        ("correct", "change", ">=", -8, "correct rollouts at least the sweep's minus 8"),
        ("correct", "change", "<", 3, "correct rollouts below the sweep's plus 3"),
        ("correct", "change", ">=", 0, "correct rollouts at least the sweep's"),
        ("looping", "value", "<=", 8.0, "looping rollouts at most 8"),
        ("total_tokens", "value", "<=", 1e300, "total tokens at most 1e+300 tokens"),
        (
            "tokens_per_correct",
            "ratio_high",
            "<",
            1,
            "tokens per correct answer: upper end of the ratio's interval to the sweep below 1",
        ),
        ("clean_length", "ratio", "<=", 1.2500001, "length of clean answers: ratio to the sweep at most 1.2500001"),
        (
            "logprob",
            "change_low",
            ">",
            -0.15,
            "sampled-token logprob: lower end of the interval of the change against the sweep above -0.15 nats per token",
        ),
        (
            "truncated",
            "rate_high",
            "<",
            0.05,
            "truncated rollouts: upper end of the interval of the share of rollouts below 0.05",
        ),
    ],
)
def test_words(measure, compare, op, limit, words):
    assert rule_in_words(Rule(name="r", measure=measure, compare=compare, op=op, limit=limit)) == words


def test_stop_rules_are_against_update_1():
    rule = StopRule(name="r", measure="logprob", compare="change", op="<=", limit=-0.3)
    assert rule_in_words(rule) == "sampled-token logprob fell by 0.3 or more nats per token against update 1"
