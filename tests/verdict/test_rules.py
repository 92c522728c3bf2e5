from fractions import Fraction

import numpy as np
import pytest

from ablation.measures.estimate import Estimate
from ablation.measures.rates import rate
from ablation.plan.model import Statistics
from ablation.plan.phase2 import Guard
from ablation.plan.rules import Rule
from ablation.verdict.figures import figures_of
from ablation.verdict.rules import BOUND, Figures, judge, out_of_reach
from tests.measures.build import outcomes

CLEAN_19 = "the start has 19 clean rollouts, so the change is -19 at the lowest and the limit is "


@pytest.mark.parametrize(
    ("measure", "op", "limit", "start", "why"),
    [
        ("clean", "<=", -21, 19, CLEAN_19 + "-21"),
        ("clean", "<=", -19, 19, None),
        ("clean", "<", -19, 19, CLEAN_19 + "below -19"),
        ("clean", "<=", -1, 0, "the start has 0 clean rollouts, so the change is 0 at the lowest and the limit is -1"),
        ("clean", "<=", -2, 1, "the start has 1 clean rollout, so the change is -1 at the lowest and the limit is -2"),
        ("looping", ">=", 3, 45, None),
        (
            "looping",
            ">=",
            3,
            46,
            "the start has 46 looping rollouts of 48, so the change is +2 at the highest and the limit is +3",
        ),
        (
            "looping",
            ">",
            2,
            46,
            "the start has 46 looping rollouts of 48, so the change is +2 at the highest and the limit is above +2",
        ),
        (
            "clean",
            ">",
            0,
            48,
            "the start has 48 clean rollouts of 48, so the change is 0 at the highest and the limit is above 0",
        ),
        ("logprob", "<=", -21, -0.5, None),
    ],
)
def test_a_change_that_no_count_can_reach(measure, op, limit, start, why):
    """Of 48 rollouts, so a change is from -start to 48 - start."""
    rule = Rule(name="r", measure=measure, compare="change", op=op, limit=limit)
    assert out_of_reach(rule, Figures({measure: 10, "rollouts": 48}, {measure: start, "rollouts": 48})) == why


def test_what_is_not_known_is_not_said():
    lost = Rule(name="r", measure="clean", compare="change", op="<=", limit=-21)
    gained = Rule(name="r", measure="clean", compare="change", op=">=", limit=21)
    assert out_of_reach(lost, Figures({}, {}, {"clean": -3})) is None
    assert out_of_reach(gained, Figures({"clean": 40}, {"clean": 40})) is None  # of how many rollouts?
    assert out_of_reach(lost, Figures({"clean": 10}, {"clean": 19})) == CLEAN_19 + "-21"


def rule(measure, compare, op, limit):
    return Rule(name="rule", measure=measure, compare=compare, op=op, limit=limit)


def of_scores(subject, reference, size, asked):
    """Figures of two models with so many correct of `size` rollouts for each problem."""
    models = [
        outcomes([(f"p{p}", "low", i, i < score, 5, 9) for p, score in enumerate(scores) for i in range(size)])
        for scores in (subject, reference)
    ]
    measured = [{"correct": int(one.correct.sum())} for one in models]
    return figures_of([asked], tuple(models), tuple(measured), Statistics(), cluster="problem", shown=())


def test_a_drop_of_exactly_the_allowed_size_is_allowed():
    """Case I05: 0.7 to 0.6 is 0.1 in fractions, and -0.09999999999999998 in floats; 3 of 15 are 3 of 15 however they are split."""
    allowed = rule("correct_rate", "change", ">=", -0.1)
    found = judge(allowed, of_scores([6], [7], 10, allowed))
    assert (found.holds, found.value) == (True, Fraction(-1, 10))
    assert judge(rule("correct_rate", "change", ">", -0.1), of_scores([6], [7], 10, allowed)).holds is False
    equal = rule("correct", "change", ">=", 0)
    assert judge(equal, of_scores([0, 0, 0, 0, 3], [0, 0, 0, 1, 2], 3, equal)).holds is True


def test_the_number_is_compared_and_not_its_print():
    """Case I05: 3.4976 prints as 3.50 and is under 3.5; an end of an interval at exactly 0 passes `>=` alone."""
    under = rule("tokens_per_correct", "value", "<", 3.5)
    assert judge(under, Figures({"tokens_per_correct": 3.4976})).holds is True
    for op, holds in ((">=", True), (">", False)):
        asked = rule("correct", "change_low", op, 0)
        assert judge(asked, Figures(intervals={"correct": Estimate(Fraction(2), 0.0, 4.0, 0.9, 24)})).holds is holds


def test_none_of_fifty_is_undecided_below_its_bound():
    """Case I01: 0 of 50 is 0 to 0.071 at 95%: no upper end under 0.05, but one under 0.08."""
    found = Figures(rates={"truncated": rate(np.zeros(50), np.ones(50), Statistics(level=0.95))})
    tight = judge(rule("truncated", "rate_high", "<", 0.05), found)
    assert (tight.holds, tight.value) == (None, None)
    assert tight.reason.endswith("the exact 95% bound is 0 to 0.0711")
    loose = judge(rule("truncated", "rate_high", "<", 0.08), found)
    assert (loose.holds, loose.how, round(float(loose.value), 4)) == (True, BOUND, 0.0711)


@pytest.mark.parametrize(
    ("op", "limit", "holds"),
    [(">=", 3, True), (">=", 4, None), (">=", 5, None), (">=", 6, False), ("<=", 2, False), ("<=", 5, True)],
)
def test_answers_that_nobody_labelled_may_count_or_not(op, limit, holds):
    """3 are labelled so and 2 more may be: 3 to 5."""
    figures = Figures({"over_refusal": 3, "rollouts": 10}, {"over_refusal": 0}, open_counts={"over_refusal": (2, 0)})
    rule = Guard(name="r", measure="over_refusal", compare="value", op=op, limit=limit)
    assert judge(rule, figures).holds is holds


@pytest.mark.parametrize(("limit", "holds"), [(-2, True), (-1, None), (2, None), (3, False)])
def test_those_of_the_reference_may_count_too(limit, holds):
    """3 or up to 5, less 2 or up to 4: -1 to +3."""
    figures = Figures({"over_refusal": 3, "rollouts": 10}, {"over_refusal": 2}, open_counts={"over_refusal": (2, 2)})
    rule = Guard(name="r", measure="over_refusal", compare="change", op=">", limit=limit)
    assert judge(rule, figures).holds is holds
