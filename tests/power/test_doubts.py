from pathlib import Path

import pytest

from ablation.plan.load import load_plan, parse_plan
from ablation.power.doubts import doubts

PLANS = Path(__file__).parents[2] / "plans"
QUICKSTART = (PLANS / "quickstart.yaml").read_text()


def with_loops(setting):
    assert "loops: {gram: 24}" in QUICKSTART
    return QUICKSTART.replace("loops: {gram: 24}", f"loops: {{{setting}}}")


def of(text):
    return doubts(parse_plan(Path("plan.yaml"), text.encode()).plan)


@pytest.mark.parametrize("path", sorted(PLANS.glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_plans_leave_none(path):
    assert doubts(load_plan(path).plan) == []


@pytest.mark.parametrize(
    ("compare", "op", "limit", "doubtful"),
    [
        ("change", "<=", 21, True),  # `lost 21` without its minus sign
        ("change", "<=", -21, False),
        ("change", "<=", 0, True),
        ("change", "<", 0, False),
        ("change", ">=", -3, True),
        ("value", "<=", 21, False),
        ("rate", ">=", 0.1, False),
    ],
)
def test_a_rule_that_an_unchanged_arm_meets(compare, op, limit, doubtful):
    first = QUICKSTART.index("  damage:")
    rule = f'    - {{name: slip, measure: clean, compare: {compare}, op: "{op}", limit: {limit}}}\n'
    line_end = QUICKSTART.index("\n", first) + 1
    found = of(QUICKSTART[:line_end] + rule + QUICKSTART[line_end:])
    assert [one.split(":")[0] for one in found] == (["verdict.damage[0] (slip)"] if doubtful else [])


def test_loops_that_no_rollout_can_hold():
    """192 tokens at most: four times 38 windows of 38 tokens need 4 * 38 + 38 - 1 = 189, of 39 they need 194."""
    cap = load_plan(PLANS / "quickstart.yaml").plan.sampling.max_tokens
    assert cap == 192
    assert of(with_loops("gram: 38")) == of(with_loops("min_tokens: 192")) == []
    [gram] = of(with_loops("gram: 39"))
    assert gram == "loops.gram: a strong loop needs 194 tokens and a rollout has at most 192, so none is ever found"
    [tokens] = of(with_loops("min_tokens: 193"))
    assert tokens.startswith("loops.min_tokens: ")
