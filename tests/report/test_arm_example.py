"""The worked update: its arithmetic is redone here, by hand and by Python."""

from __future__ import annotations

import itertools
import math
import re

import pytest

from ablation.plan.arms import Arm, ArmReward, Clip, KLAnchor, Reward
from ablation.plan.weightings import WEIGHTINGS
from ablation.report.arm_example import ROLLOUTS, Example
from ablation.report.arm_tables import library

PARTS = [
    {},
    {"truncated": "apart", "finish_push": 0.1, "kl": KLAnchor(beta=0.05)},
    {"truncated": "apart", "finish_push": 0.1, "kl": KLAnchor(beta=0.05, unit="advantage")},
    {"truncated": "mask", "no_signal": "drop", "kl": KLAnchor(beta=0.05, estimator="k3", unit="advantage")},
    {"truncated": "penalize", "truncation_penalty": 0.5, "reward": ArmReward(loop_penalty=0.25)},
    {"advantages": "positive", "kl": KLAnchor(beta=2.0, damp_only=True)},
    {"baseline": "leave_one_out", "scale": "std", "clip": Clip(), "tokens": "response"},
    {"baseline": "none"},
]


def example(**fields) -> Example:
    arm = Arm(**fields)
    own = {} if arm.reward is None else arm.reward.model_dump(exclude_none=True)
    return Example(arm, Reward(**own))


def totals(found: Example) -> list[float]:
    return [round(row["total"], 9) for row in found.rows()]


def test_rewards_and_lengths_by_hand():
    rows = example(weighting="token").rows()
    # 9.5 of 28.5 saved: + 0.1; 50.5 too long, clipped at -1: - 0.3; 78 of 117 saved: + 0.2; the others are not clean
    assert [row["reward"] for row in rows] == pytest.approx([1.1, 0.7, 0, 1.2, 0, 0, 0, 0, 0])
    assert [row["weighted_tokens"] for row in rows] == [20, 80, 200, 40, 110, 150, 30, 60, 90]


def test_arm_n_by_hand():
    """Means 0.6 and 0.4, so advantages 0.5, 0.1, -0.6 and 0.8, -0.4, -0.4; each total is a hundred times that."""
    found = example(weighting="rollout")
    assert totals(found) == [50, 10, -60, 80, -40, -40, 0, 0, 0]
    sums = found.sums()
    assert (sums["absolute_weight"], sums["net_weight"], sums["negative_share"]) == (280, 0, 0.5)
    assert sums["truncated_share"] == pytest.approx(60 / 280)
    assert sums["no_signal_cells"] == ["p3@low"]


def test_arm_c_by_hand():
    """Lbar_g is 100 in both groups that teach: a token weighs its advantage, a rollout its advantage times its length."""
    found = example(weighting="token")
    assert totals(found) == [10, 8, -120, 32, -44, -60, 0, 0, 0]
    assert found.sums()["net_weight"] == -174
    assert found.sums()["truncated_share"] == pytest.approx(120 / 274)


def test_arm_xp_by_hand():
    """Without the truncated rollout the first group's mean is 0.9: 0.2 and -0.2; then 0.1 of s0 = 10 for or against each."""
    found = example(weighting="rollout", truncated="apart", finish_push=0.1)
    assert totals(found) == [20 + 10, -20 + 10, -10, 80 + 10, -40 + 10, -40 + 10, 10, 10, 10]
    assert found.sums()["net_weight"] == 70


def test_arm_xk_by_hand():
    """0.05 per nat and token: 20 tokens that moved by 0.2 lose 0.2; the truncated rollout is not in the loss."""
    rows = example(weighting="rollout", truncated="apart", kl=KLAnchor(beta=0.05)).rows()
    assert [row["kl_total"] for row in rows] == pytest.approx([-0.2, -0.4, 0, -0.8, 1.1, 0, -0.15, 0, 0.45])
    assert [row["total"] for row in rows] == pytest.approx([19.8, -20.4, 0, 79.2, -38.9, -40, -0.15, 0, 0.45])


def test_dapo_by_hand():
    """In the loss: 30, 90, 50, 120 and 160 sampled tokens, Lbar = 90. The first five tokens of the short one are clipped."""
    rows = example(**library()["DAPO"].model_dump()).rows()
    spread = math.sqrt((0.5**2 + 0.1**2 + 0.6**2) / 2)
    assert rows[0]["total"] == pytest.approx(25 * 0.5 / spread * 100 / 90)
    assert rows[0]["clipped_tokens"] == 5
    assert rows[2]["total"] == 0 and rows[6]["total"] == 0
    assert rows[4]["total"] == pytest.approx(120 * -0.4 / math.sqrt((0.8**2 + 2 * 0.4**2) / 2) * 100 / 90)


def test_penalties_by_hand():
    """Rewards 1.1, 0.7, -0.5 with the mean 1.3 / 3; and 1.2, -0.25, 0."""
    found = example(weighting="rollout", truncated="penalize", truncation_penalty=0.5, reward=ArmReward(loop_penalty=0.25))
    rows = found.rows()
    assert [row["reward"] for row in rows[:6]] == pytest.approx([1.1, 0.7, -0.5, 1.2, -0.25, 0])
    assert rows[0]["advantage"] == pytest.approx(1.1 - 1.3 / 3)
    assert dict(found.by_hand(2))["reward"] == "0 − 0.5 = −0.5"
    assert dict(found.by_hand(4))["reward"] == "0 − 0.25 = −0.25"


def test_by_hand_as_it_is_printed():
    assert example(weighting="rollout").by_hand(0) == [
        ("reward", "1 + 0.3 × min(max((28.5 − 19) / 28.5, −1), 1) = 1.1"),
        ("advantage", "1.1 − (1.1 + 0.7 + 0) / 3 = 0.5"),
        ("weight", "0.5 × 100 / 20 = 2.5"),
        ("total", "20 × 2.5 = 50"),
    ]
    assert dict(example(weighting="rollout", truncated="apart").by_hand(2)) == {
        "reward": "0",
        "advantage": "0: a truncated rollout is out of the loss (truncated: apart)",
        "weight": "0 on every token",
    }
    assert dict(example(weighting="high_entropy").by_hand(0))["total"] == "4 × 0.5769 + 16 × 0 = 2.308"


@pytest.mark.parametrize(("weighting", "parts"), list(itertools.product(WEIGHTINGS, PARTS)))
def test_every_printed_line_is_true(weighting, parts):
    """Left and right of each equals sign are worked out and agree, to the four digits that are printed."""
    found = example(weighting=weighting, **parts)
    for row in range(len(ROLLOUTS)):
        for what, text in found.by_hand(row):
            if " = " not in text:
                continue
            left, right = text.split(" = ")
            assert evaluated(left) == pytest.approx(evaluated(right), rel=3e-3, abs=3e-4), (row, what, text)
        assert dict(found.by_hand(row)).get("total", " = 0").split(" = ")[1] == four(found.rows()[row]["total"])


def evaluated(text: str) -> float:
    text = text.replace("×", "*").replace("−", "-").replace("²", "**2").replace("√", "sqrt")
    return eval(text, {"max": max, "min": min, "exp": math.exp, "sqrt": math.sqrt, "log": math.log})


def four(value: float) -> str:
    return re.sub("^-0$", "0", f"{value + 0.0:.4g}").replace("-", "−")
