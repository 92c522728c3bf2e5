"""Agent turns worked out by hand, then at the study's size against loops over plain numbers."""

import math
from fractions import Fraction

import numpy as np
import pytest

from ablation.errors import IncompleteError, IntegrityError
from ablation.measures.agent import agent_comparison, agent_measures
from ablation.plan.model import Loops, Statistics
from ablation.problems.agent_states import AgentState
from ablation.problems.tool_schemas import read_tools
from ablation.rollouts.store import stage_of
from tests.rollouts.build import CLOSE, END, info, rollout

TOOLS = read_tools([{"name": "ls", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}], "tools")
LS = '<tool_call>{"name": "ls", "arguments": {"path": "."}}</tool_call>'
BAD = '<tool_call>{"name": "ls", "arguments": {"path": 3}}</tool_call>'
LOOPS = Loops()
SETTINGS = Statistics(min_clusters=2, resamples=2000)


def states_of(tasks: dict[str, list[str]]) -> dict[str, AgentState]:
    return {name: AgentState(name, task, (), TOOLS) for task, names in tasks.items() for name in names}


TASKS = {"build": ["b1", "b2"], "fix": ["f1"]}
STATES = states_of(TASKS)


def stage(lengths: dict[str, list[int]], states=STATES, answers=None, arm="N"):
    """A stage whose turns think for `lengths[state][index]` tokens, all different, and then answer `LS`."""
    of = info(arm=arm, stage="agent", cap=100_000)
    rows = []
    for name, counts in lengths.items():
        for index, count in enumerate(counts):
            answer = (answers or {}).get((name, index), LS)
            ids = [*range(1000, 1000 + count), CLOSE, 7, END] if answer else [*range(1000, 1000 + count), END]
            rows.append(rollout(of, ids, problem=name, source=states[name].task, index=index, answer=answer))
    return stage_of(of, rows)


SUBJECT = {"b1": [40, 120], "b2": [10, 30], "f1": [300, 500]}
REFERENCE = {"b1": [20, 20], "b2": [30, 10], "f1": [100, 100]}
# means 80/20 = 4, 20/20 = 1, 400/100 = 4; tasks: build sqrt(4 * 1) = 2, fix 4; typical sqrt(2 * 4)


def test_typical_turn_and_ratio_of_sums_by_hand():
    subject, reference, ratios = agent_measures(stage(SUBJECT), stage(REFERENCE, arm="start"), STATES, SETTINGS, LOOPS)
    assert ratios["agent_turn"].value == pytest.approx(math.sqrt(8), rel=1e-12)
    assert ratios["agent_tokens"].value == Fraction(1000, 280)
    # two tasks, drawn twice: both build, one of each, both fix
    assert ratios["agent_turn"].low == pytest.approx(2) and ratios["agent_turn"].high == pytest.approx(4)
    assert ratios["agent_tokens"].low == pytest.approx(200 / 80) and ratios["agent_tokens"].high == pytest.approx(800 / 200)
    assert ratios["agent_turn"].clusters == 2
    assert (subject["agent_tokens"], reference["agent_tokens"]) == (1000, 280)
    assert (subject["agent_turn"], reference["agent_turn"]) == (1000 / 6, 280 / 6)
    assert (subject["median_turn"], reference["median_turn"]) == (80.0, 25.0)  # of 10 30 40 120 300 500; of 10 20 20 30 100 100
    assert (subject["rollouts"], subject["states"], subject["tasks"], subject["under_one_token"]) == (6, 3, 2, 0)
    # each turn ends with the closing token, a token of answer and the end
    assert (subject["total_tokens"], subject["truncated"], subject["looping"]) == (1000 + 18, 0, 0)


def test_row_order_does_not_matter():
    backwards = {name: SUBJECT[name] for name in reversed(SUBJECT)}
    assert agent_measures(stage(backwards), stage(REFERENCE), STATES, SETTINGS, LOOPS) == agent_measures(
        stage(SUBJECT), stage(REFERENCE), STATES, SETTINGS, LOOPS
    )


def test_a_mean_below_one_token_counts_as_one():
    subject, reference, ratios = agent_measures(
        stage({"b1": [0, 1], "b2": [0, 0], "f1": [9, 9]}),
        stage({"b1": [8, 8], "b2": [0, 0], "f1": [0, 0]}),
        STATES,
        SETTINGS,
        LOOPS,
    )
    # 1/8, 1/1, 9/1: build sqrt(1/8), fix 9
    assert ratios["agent_turn"].value == pytest.approx(math.sqrt(math.sqrt(1 / 8) * 9))
    assert (subject["under_one_token"], reference["under_one_token"]) == (2, 2)
    assert ratios["agent_tokens"].value == Fraction(19, 16)


def test_a_reference_that_never_thinks_has_no_ratio_of_sums():
    none = {"b1": [0, 0], "b2": [0, 0], "f1": [0, 0]}
    _, _, ratios = agent_measures(stage(SUBJECT), stage(none), STATES, SETTINGS, LOOPS)
    assert (ratios["agent_tokens"].value, ratios["agent_tokens"].reason) == (None, "no_reference")
    assert ratios["agent_turn"].value == pytest.approx(math.sqrt(math.sqrt(80 * 20) * 400))


def test_a_model_against_itself_is_one_without_a_false_certainty():
    _, _, ratios = agent_measures(stage(SUBJECT), stage(SUBJECT), STATES, SETTINGS, LOOPS)
    assert (ratios["agent_turn"].value, ratios["agent_turn"].reason) == (1.0, "degenerate")
    assert ratios["agent_tokens"].value == 1


def test_few_tasks_have_no_interval_by_default():
    _, _, ratios = agent_measures(stage(SUBJECT), stage(REFERENCE), STATES, Statistics(), LOOPS)
    assert {one.reason for one in ratios.values()} == {"few_clusters"}


def test_tool_calls_are_counted_with_reasons():
    answers = {("b1", 0): BAD, ("b2", 1): "It is done.", ("f1", 0): "", ("f1", 1): LS.replace("ls", "rm")}
    subject, _, _ = agent_measures(stage(SUBJECT, answers=answers), stage(REFERENCE), STATES, SETTINGS, LOOPS)
    counts = [subject[name] for name in ("valid_tool_call", "invalid_tool_call", "no_tool_call")]
    assert counts == [2, 2, 2] and sum(counts) == subject["rollouts"]
    assert subject["reasons"] == {"no_answer": 1, "text_only": 1, "unknown_tool": 1, "wrong_type": 1}


def test_where_the_difference_comes_from():
    found = agent_comparison(stage(SUBJECT, answers={("f1", 1): BAD}), stage(REFERENCE), STATES)
    # pairs: 40/20 120/20 | 10/30 30/10 | 300/100 500/100
    assert found["pairs"] == {"all": 6, "both_short": 3, "subject_long": 1, "reference_long": 0, "both_long": 2}
    assert found["both_short_ratio"] == (40 + 10 + 30) / (20 + 30 + 10)
    assert found["median_ratio"] == 4.0
    assert [(one["state"], one["index"], one["subject"], one["reference"]) for one in found["most"]] == [
        ("f1", 1, 500, 100), ("f1", 0, 300, 100), ("b1", 1, 120, 20), ("b1", 0, 40, 20), ("b2", 0, 10, 30), ("b2", 1, 30, 10),
    ]  # fmt: skip
    assert found["most"][0] == {
        "state": "f1", "task": "fix", "effort": "low", "index": 1, "subject": 500, "reference": 100,
        "subject_call": "wrong_type", "reference_call": "valid",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("subject", "error", "said"),
    [
        ({"b1": [1, 1], "b2": [1, 1]}, IncompleteError, r"agent turns are missing: f1 \(0 of 2\)"),
        ({"b1": [1, 1], "b2": [1, 1], "f1": [1]}, IncompleteError, r"agent turns are missing: f1 \(1 of 2\)"),
        ({"b1": [1], "b2": [1], "f1": [1]}, IncompleteError, "the subject lacks 3: b1@low #1, b2@low #1, f1@low #1"),
    ],
)
def test_missing_turns_are_named(subject, error, said):
    with pytest.raises(error, match=said):
        agent_measures(stage(subject), stage(REFERENCE), STATES, SETTINGS, LOOPS)


def test_turns_of_another_state_or_task_are_refused():
    other = states_of({"build": ["b1", "b2"], "fix": ["f1"], "new": ["n1"]})
    with pytest.raises(IntegrityError, match="there is no agent state `n1`"):
        agent_measures(stage(SUBJECT | {"n1": [1, 1]}, other), stage(REFERENCE), STATES, SETTINGS, LOOPS)
    moved = states_of({"build": ["b1", "b2", "f1"]})
    with pytest.raises(IntegrityError, match="rollout f1@low #0: its source is `build`, its task `fix`"):
        agent_measures(stage(SUBJECT, moved), stage(REFERENCE), STATES, SETTINGS, LOOPS)


def test_at_the_size_of_the_study():
    """16 tasks x 4 states x 4 samples, some turns long: against loops over plain numbers and a bootstrap of its own."""
    rng = np.random.default_rng(5)
    states = states_of({f"t{task:02}": [f"t{task:02}-{state}" for state in range(4)] for task in range(16)})
    effect = {f"t{task:02}": rng.normal(0.3, 0.4) for task in range(16)}
    lengths = [
        {name: rng.lognormal(3 + shift * effect[state.task], 0.8, 4).astype(int).tolist() for name, state in states.items()}
        for shift in (1, 0)
    ]
    _, _, ratios = agent_measures(stage(lengths[0], states), stage(lengths[1], states), states, Statistics(resamples=4000), LOOPS)
    by_task: dict[str, list[float]] = {}
    for name, state in states.items():
        mine, theirs = (sum(one[name]) / 4 for one in lengths)
        by_task.setdefault(state.task, []).append(math.log(max(1, mine) / max(1, theirs)))
    logs = [sum(one) / 4 for one in by_task.values()]
    assert ratios["agent_turn"].value == pytest.approx(math.exp(sum(logs) / 16), rel=1e-9)
    totals = [{task: sum(sum(one[n]) for n, s in states.items() if s.task == task) for task in by_task} for one in lengths]
    assert ratios["agent_tokens"].value == Fraction(sum(totals[0].values()), sum(totals[1].values()))
    draws = rng.integers(0, 16, (4000, 16))
    means = np.exp(np.array(logs)[draws].mean(axis=1))
    mine, theirs = (np.array(list(one.values()))[draws].sum(axis=1) for one in totals)
    for name, own in (("agent_turn", means), ("agent_tokens", mine / theirs)):
        low, high = np.quantile(own, [0.05, 0.95])
        assert ratios[name].clusters == 16 and ratios[name].level == 0.9
        assert (ratios[name].low, ratios[name].high) == pytest.approx((low, high), rel=0.05)
