from __future__ import annotations

from pathlib import Path

import pytest

from ablation.plan.load import load_plan
from ablation.report.checklist import OPEN, STATED, by_part, checklist
from tests.plan.conftest import TEXT, write_plan

TESSERA = Path(__file__).parents[2] / "plans" / "tessera.yaml"


def items(tmp_path, *changes: tuple[str, str]):
    text = TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return {item.topic: item for item in checklist(load_plan(write_plan(tmp_path, text)).plan)}


def test_what_the_small_plan_leaves_open(tmp_path):
    found = items(tmp_path)
    assert {topic for topic, item in found.items() if item.state == OPEN} == {
        "training seeds per arm",
        "how the training problems were chosen",
        "held-out problems",
        "never-used problems",
        "one change at a time",  # XK has no neighbour at one change: N has neither `apart` nor an anchor
        "s0, the scale of all weights",
        "what length is rewarded against",
        "how the learning rate was chosen",
        "what damage covers",
        "stop rules",
        "whether anything must improve",
        "why so many rollouts",
        "why these limits",
        "who reads, and how they are blinded",
        "many tests",
        "subgroups",
        "where rollouts and verdict will be published",
    }
    assert found["training seeds per arm"].says == "One run of an arm in a family: 3 arms in main, 2 again in replication."
    assert found["one change at a time"].says == "In more than one setting from every other arm: XK."
    assert found["what damage covers"].says == "No damage rule looks at unfinished rollouts, loops."
    assert found["stop rules"].says == "None looks at truncated or looping rollouts, numbers that are not finite."
    assert found["what an update is made of"].says.startswith("11 or 12 cells")


@pytest.mark.parametrize(
    ("topic", "old", "new", "says"),
    [
        ("one change at a time", "  XK: {", "  X: {weighting: rollout, truncated: apart}\n  XK: {", "XK from X"),
        ("s0, the scale of all weights", "  updates: 5", "  s0: 4790\n  updates: 5", "4790 tokens."),
        ("what length is rewarded against", "  updates: 5", "  reward: {length_bonus: 0}\n  updates: 5", "No length term."),
        (
            "what damage covers",
            "    - {name: logprob_lost",
            '    - {name: t, measure: truncated_or_looping, compare: change, op: ">=", limit: 20}\n    - {name: logprob_lost',
            "each has a rule",
        ),
    ],
)
def test_stating_it_closes_it(tmp_path, topic, old, new, says):
    assert items(tmp_path)[topic].state == OPEN
    found = items(tmp_path, (old, new))[topic]
    assert found.state == STATED
    assert says in found.says


def test_a_length_term_of_one_arm_alone_is_still_a_length_term(tmp_path):
    old = "learning_rate: 2e-5  # a rate\narms:\n  C: {weighting: token}"
    new = "learning_rate: 2e-5\n  reward: {length_bonus: 0}\narms:\n  C: {weighting: token, reward: {length_bonus: 0.1}}"
    found = items(tmp_path, (old, new))["what length is rewarded against"]
    assert (found.state, found.says[:29]) == (OPEN, "Each cell's mean clean length")


def test_stop_rules_that_lack_logprob(tmp_path):
    old = 'logprob_fell, measure: logprob, compare: change, op: "<=", limit: -0.3'
    new = 'not_finite, measure: nonfinite, op: ">", limit: 0'
    found = items(tmp_path, (old, new))["stop rules"]
    assert (found.state, found.says) == (OPEN, "None looks at logprob, truncated or looping rollouts.")


@pytest.mark.parametrize(
    ("rule", "state"),
    [
        ('measure: correct, compare: change, op: ">=", limit: -8', OPEN),
        ('measure: correct, compare: change, op: ">=", limit: 0', OPEN),
        ('measure: correct, compare: change, op: ">=", limit: 1', STATED),
        ('measure: tokens_per_correct, compare: ratio_high, op: "<", limit: 1', STATED),
        ('measure: tokens_per_correct, compare: ratio, op: "<=", limit: 1', OPEN),
        ('measure: cjk_share, compare: ratio, op: ">=", limit: 0.5', OPEN),
        ('measure: correct, compare: value, op: ">=", limit: 90', OPEN),
    ],
)
def test_only_a_rule_that_an_equal_model_fails_asks_for_better(tmp_path, rule, state):
    stage = f"  held_out:\n    rollouts: 100\n    rules: [{{name: r, {rule}}}]\n    blinded_read: {{pairs: 12, passes: 10}}\n"
    found = items(tmp_path, (TEXT, TEXT + stage))
    assert found["whether anything must improve"].state == state
    assert found["held-out problems"].says == "100 rollouts, rules: 1; the problems are not named."
    assert found["who reads, and how they are blinded"].says.startswith("10 of 12 pairs must pass")


def test_owed_files_and_guards():
    found = {item.topic: item for item in checklist(load_plan(TESSERA).plan)}
    assert "model.start_adapter" in found["files at hand"].says
    assert found["held-out problems"].says == "144 rollouts, rules: 5; the problems are owed."
    assert found["intervals"].says.endswith("they decide fewer_tokens.")
    assert found["what release guards are measured on"].state == STATED


def test_every_item_says_why_in_one_sentence_and_parts_keep_their_order():
    found = [item.as_json() for item in checklist(load_plan(TESSERA).plan)]
    assert all(item["why"].endswith(".") and ". " not in item["why"] for item in found)
    parts = by_part(found)
    assert [part for part, _ in parts] == ["Design", "Problems", "Arms", "Outcomes", "Size", "Blinding", "Analysis", "Access"]
    assert [item for _, own in parts for item in own] == found


def test_the_study_s_plan_says_what_its_release_stands_on():
    found = {item.topic: item for item in checklist(load_plan(TESSERA).plan)}
    assert (found["what release guards are measured on"].state, found["what a win on the main set is"].state) == (STATED, STATED)
    assert found["what release guards are measured on"].says == "Guards: 11, on agent, safety, main."
    assert found["who reads, and how they are blinded"].says == "10 of 12 pairs must pass, by 1 rater; who they are is open."


def test_guards_without_a_set_are_open_and_claims_are_counted(tmp_path):
    guards = (
        '  release: {guards: [{name: turns, measure: agent_turn, compare: ratio, op: "<=", limit: 1.25}]}\n'
        "  claims:\n    more: {subjects: [N, XK], reference: C, measure: clean, side: greater, correction: none}\n"
        "    same: {subjects: [N], reference: start, measure: logprob, side: two_sided}\n"
    )
    found = items(tmp_path, ("  replication: {control", guards + "  replication: {control"))
    assert found["what release guards are measured on"].says == "The plan names no set for turns."
    assert (found["what a win on the main set is"].state, found["what release guards are measured on"].state) == (OPEN, OPEN)
    assert "Claims: 2 (by Holm or with one arm each: same; not corrected over their arms: more)" in found["many tests"].says
