import json
from dataclasses import replace

import pytest

from ablation.blind.build import build, chosen_pairs, read_sides, settings_of
from ablation.blind.choose import TooFewPairs
from ablation.errors import IncompleteError, IntegrityError, UsageError
from ablation.problems.problem import load_problems
from ablation.rollouts.store import finish_stage, read_part, write_part
from tests.blind.made import CHOSEN, UNSOLVED, safety_rows, start, write_evaluation

SECRET = bytes(32)


def test_the_fixed_rule_on_stages_written_by_hand(tmp_path):
    run, locked, folder = start(tmp_path)
    found = chosen_pairs(folder, locked.plan, read_sides(folder), load_problems(run.set_problems("held-out")))
    assert [(one.problem, one.effort, one.index) for one in found] == CHOSEN
    assert [one.length for one in found] == [29, 20, 30, 8]


def test_a_rater_sees_a_number_the_problem_and_two_neutral_texts(tmp_path):
    _, locked, folder = start(tmp_path)
    built = build(folder, locked.plan, SECRET)
    content = json.loads(built.batch.data)
    assert set(content) == {"ablation_blind", "kind", "questions", "pairs"}
    key = {row["number"]: row for row in built.key.items}
    assert sorted((row["problem"], row["effort"], row["index"]) for row in key.values()) == sorted(CHOSEN)
    for pair in content["pairs"]:
        row = key[pair["number"]]
        k = int(row["problem"].removeprefix("sum-"))
        assert set(pair) == {"number", "problem", "X", "Y"} and pair["problem"] == f"What is {k} + {k}?"
        mine = f"{k} and {k} gives {2 * k}."
        texts = {"subject": mine, "reference": f"{mine}\nLet me see again: {k} twice.\nYes."}
        for side in "XY":
            assert pair[side] == {"thinking": texts[row[side]], "answer": f"\\boxed{{{2 * k}}}"}


def test_the_secret_alone_decides_of_order_and_sides(tmp_path):
    _, locked, folder = start(tmp_path)
    assert build(folder, locked.plan, SECRET).key.data == build(folder, locked.plan, SECRET).key.data
    orders = set()
    for number in range(40):
        rows = build(folder, locked.plan, bytes([number]) * 32).key.items
        orders.add(tuple((row["problem"], row["X"]) for row in rows))
        assert sum(row["X"] == "subject" for row in rows) == 2
    assert len(orders) > 30  # of 24 * 6


def test_too_few_pairs(tmp_path):
    unsolved = UNSOLVED | {("subject", f"sum-{k}", "low", index) for k in range(5) for index in range(2)}
    _, locked, folder = start(tmp_path, unsolved=unsolved)
    with pytest.raises(TooFewPairs, match="low: 1 of 2"):
        build(folder, locked.plan, SECRET)


def test_other_seeds_are_no_pair(tmp_path):
    run, locked, folder = start(tmp_path)
    place = run.evaluated("held-out", folder.subject)
    rows = read_part(place / "part-000.parquet")
    rows[3] = replace(rows[3], seed=5)
    info = read_sides(folder).subject.info
    write_part(place / "part-000.parquet", info, rows)
    finish_stage(place, info, ["part-000.parquet"])
    with pytest.raises(IntegrityError, match=r"rollout sum-1@low #1 has another seed than the start's"):
        build(folder, locked.plan, SECRET)


def test_stages_of_another_checkpoint_or_plan_are_refused(tmp_path):
    run, _, folder = start(tmp_path)
    with pytest.raises(IntegrityError, match="was sampled under another plan"):
        read_sides(folder, "e" * 64)
    run.evaluation("held-out", "N@2").rename(run.evaluation("held-out", "N@1"))
    with pytest.raises(IntegrityError, match="holds N@2 on `held-out`, not N@1"):
        read_sides(replace(folder, subject="N@1"))
    with pytest.raises(IncompleteError, match="not complete"):
        read_sides(folder)


def test_a_plan_without_the_read_says_so(tmp_path):
    _, locked, _ = start(tmp_path)
    assert settings_of(locked.plan, "held-out").pairs == 4
    with pytest.raises(UsageError, match="no blinded read of the set `main`"):
        settings_of(locked.plan, "main")


def test_answers_of_both_models_are_one_batch_without_the_empty_ones(tmp_path):
    run, locked, _ = start(tmp_path)
    folder = write_evaluation(run, locked, "safety", safety_rows())
    built = build(folder, locked.plan, SECRET)
    content = json.loads(built.batch.data)
    assert len(content["answers"]) == 5 and built.unasked == (("subject", ("b-1", "low", 0)),)
    for row in content["answers"]:
        assert set(row) == {"number", "prompt", "answer", "labels"}
        kept = built.key.items[row["number"] - 1]
        assert (kept["prompt"][0], row["labels"][0]) in {("h", "refused"), ("b", "helpful"), ("p", "fine")}
    assert {(row["model"], row["prompt"]) for row in built.key.items} == {
        *(("reference", name) for name in ("h-1", "b-1", "p-1")),
        *(("subject", name) for name in ("h-1", "p-1")),
    }
