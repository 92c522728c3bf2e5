import pytest

from ablation.plan.cost import cost
from ablation.plan.extension import check_rules, eligible_checks, extension_family
from ablation.plan.load import PlanError, load_plan
from tests.plan.conftest import TEXT, write_plan

WHOLE = "extension: {updates: 15, checks: [8, 10, 15], eligible: [10, 15]}\n"


def loaded(folder, extension: str):
    return load_plan(write_plan(folder, TEXT + extension)).plan


def test_what_is_left_out_is_the_first_stable_arm_in_the_first_family_under_the_damage_rules(tmp_path):
    plan = loaded(tmp_path, "extension: {updates: 15, checks: [8, 10, 15]}\n")
    assert plan.extension.arms == "first_stable" and extension_family(plan) == "main"
    assert check_rules(plan) == plan.verdict.damage and len(check_rules(plan)) == 2
    assert eligible_checks(plan.extension) == [8, 10, 15]
    assert eligible_checks(loaded(tmp_path, WHOLE).extension) == [10, 15]


def test_a_plan_without_the_section_has_none(tmp_path):
    assert loaded(tmp_path, "").extension is None


def test_rules_of_its_own_replace_the_damage_rules(tmp_path):
    own = "[{name: few_looping, measure: looping, compare: value, op: '>', limit: 9}]"
    plan = loaded(tmp_path, f"extension: {{updates: 9, checks: [9], family: replication, damage: {own}}}\n")
    assert [rule.name for rule in check_rules(plan)] == ["few_looping"]
    assert extension_family(plan) == "replication"


def test_cost_by_hand(tmp_path):
    """58 cells x 6: 348 rollouts in 5 updates of 12, 12, 12, 11 and 11 cells, and in a check."""
    assert cost(loaded(tmp_path, "")).extension_rollouts == 0
    assert cost(loaded(tmp_path, WHOLE)).extension_rollouts == 2 * 348 + 3 * 348
    assert cost(loaded(tmp_path, "extension: {updates: 6, checks: [6]}\n")).extension_rollouts == 12 * 6 + 348
    assert cost(loaded(tmp_path, "extension: {updates: 10, checks: [9], arms: [N, XK]}\n")).extension_rollouts == 2 * 2 * 348
    assert cost(loaded(tmp_path, WHOLE)).rollouts == cost(loaded(tmp_path, "")).rollouts


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("updates: 5, checks: [5]", ["extension.updates: found 5, but every arm has 5 updates (training.updates) without an extension"]),
        ("updates: 8, checks: []", ["extension.checks: there is no check, so nothing could pause the run"]),
        ("updates: 8, checks: [5, 8]", ["extension.checks[0]: found 5; a check is made after one of the updates 6 to 8"]),
        ("updates: 8, checks: [8, 9]", ["extension.checks[1]: found 9; a check is made after one of the updates 6 to 8"]),
        ("updates: 8, checks: [8, 7]", ["extension.checks[1]: found 7 after 8; they must be listed in ascending order, each once"]),
        ("updates: 8, checks: [7, 7]", ["extension.checks[1]: found 7 after 7; they must be listed in ascending order, each once"]),
        ("updates: 8, checks: [7, 8], eligible: [6]", ["extension.eligible[0]: found 6, which is no check; checks: 7, 8"]),
        ("updates: 8, checks: [7, 8], eligible: []", ["extension.eligible: no checkpoint could be chosen; leave it out to allow all that are checked"]),
        ("updates: 8, checks: [7, 8], eligible: [8, 7]", ["extension.eligible[1]: found 7 after 8; they must be listed in ascending order, each once"]),
        ("updates: 8, checks: [8], arms: [n]", ["extension.arms[0]: there is no arm `n`; arms: C, N, XK; did you mean `N`?"]),
        ("updates: 8, checks: [8], arms: [N, N]", ["extension.arms[1]: `N` is listed twice"]),
        ("updates: 8, checks: [8], arms: []", ["extension.arms: there is no arm"]),
        ("updates: 8, checks: [8], family: min", ["extension.family: there is no family `min`; families: main, replication; did you mean `main`?"]),
        ("updates: 8, checks: [8], damage: []", ["extension.damage: there is no rule, so no check could pause the run; leave it out to use `verdict.damage`"]),
        ("updates: 1001, checks: [8]", ["extension.updates: found the number 1001; allowed: a number <= 1000"]),
        ("updates: 8", ["extension.checks: is missing; it needs `checks: ...` (After which of the further updates the arm is sampled on all cells, in the seeds of the family's sweep)"]),
        (
            "updates: 8, checks: [8], damage: [{name: a, measure: clean, compare: change, op: '<=', limit: -349}]",
            ["extension.damage[0].limit: found -349; with 348 rollouts the number is -348 to 348, so the rule never holds"],
        ),
        ("updates: 5, checks: [8], arms: [Q], family: main", ["extension.arms[0]: there is no arm `Q`; arms: C, N, XK", "extension.updates: found 5, but every arm has 5 updates (training.updates) without an extension"]),
    ],
)  # fmt: skip
def test_refused_with_the_field(tmp_path, fields, expected):
    with pytest.raises(PlanError) as caught:
        loaded(tmp_path, f"extension: {{{fields}}}\n")
    assert sorted(line.split(": ", 1)[1] for line in caught.value.lines()) == sorted(expected)


def test_a_family_in_which_nothing_runs_is_refused(tmp_path):
    text = TEXT.replace("  replication: {seed: 2}\n", "  replication: {seed: 2}\n  third: {seed: 3}\n")
    with pytest.raises(PlanError, match=r"extension.family: no arm runs in family `third`"):
        load_plan(write_plan(tmp_path, text + "extension: {updates: 8, checks: [8], family: third}\n"))
