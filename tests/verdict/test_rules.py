import pytest

from ablation.plan.rules import Rule
from ablation.verdict.rules import Figures, out_of_reach

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
