from __future__ import annotations

import json
import time

import pytest

from ablation.plan.load import load_plan
from tests.plan.conftest import TEXT, write_plan
from tests.verdict.study import lock_small, start_run, write_stage

from .test_plan import PLANS, run

QUICK = ("--studies", "200")


@pytest.fixture
def plan(tmp_path):
    return write_plan(tmp_path)


def test_a_page_for_a_first_reader(plan, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    shown = run("power", plan, *QUICK, "--effect", "C.clean=-40", "--target", "0.01-0.05")
    assert (shown.code, shown.err) == (0, "")
    assert max(map(len, shown.out.split("\n"))) <= 80
    words = " ".join(shown.out.split())
    assert "If there were no difference at all, NOT_REPLICATED would come out in" in words
    assert "REPLICATED, by luck alone, in" in words
    assert "With the effects that you named: C clean -40" in words
    assert "reason (a study can have several) found in C is not damaged in main" in words
    assert "What this leaves out" in words


def test_json(plan):
    shown = run("power", plan, *QUICK, "--json", "--seed", "3", "--seed-sd", "clean=5", "--correlation", "0.2")
    assert (shown.code, shown.err) == (0, "")
    data = json.loads(shown.out)
    assert (data["plan"], data["digest"], data["studies"], data["seed"]) == (str(plan), load_plan(plan).digest, 200, 3)
    assert (data["model"]["seed_sd"], data["model"]["correlation"]) == ({"clean": 5.0}, 0.2)
    assert (data["with_effects"], data["proposals"]) == (None, [])
    assert shown.out == run("power", plan, *QUICK, "--json", "--seed", "3", "--seed-sd", "clean=5", "--correlation", "0.2").out


def test_every_assumed_rate_moves_the_answer(plan):
    def rates(*options):
        return json.loads(run("power", plan, *QUICK, "--json", *options).out)

    base = rates()
    for option, value in [
        ("--correct", "0.5"),
        ("--truncated", "0.2"),
        ("--looping", "0.1"),
        ("--looping-truncated", "0.2"),
        ("--concentration", "9"),
        ("--seed", "1"),
    ]:
        assert rates(option, value)["no_difference"] != base["no_difference"], option
    assert rates("--logprob-sd", "2")["no_difference"]["damage_rules"][1]["share"]["share"] > 0.05
    assert rates("--logprob-cell-sd", "2")["stop_rules"][0]["share"]["share"] > 0.3


def test_pilot(tmp_path):
    locked = lock_small(tmp_path / "plans")
    folder = write_stage(start_run(tmp_path / "runs" / "small", locked), locked, "main", "start", {"clean": 12, "cut": 4})
    data = json.loads(run("power", locked.path, *QUICK, "--json", "--pilot", folder).out)
    assert data["model"]["source"] == f"pilot sweep {folder} (24 rollouts)"
    assert data["model"]["rates"]["clean"] == pytest.approx(0.5, abs=0.03)
    assert data["model"]["means"]["logprob"]["level"] == pytest.approx(-0.5)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--studies", "5"], "--studies 5: must be 100 to 200,000"),
        (["--correct", "2"], "--correct 2: must be a share"),
        (["--effect", "Q.clean=3"], "--effect Q.clean=3: there is no arm `Q`"),
        (["--effect", "C.clean=-999"], "--effect C.clean=-999: does not fit"),
        (["--seed-sd", "clean"], "--seed-sd clean: is not MEASURE=SD"),
        (["--target", "2%"], "--target 2%: is not LOW-HIGH"),
        (["--pilot", "none"], "--pilot none: there is no finished sweep"),
        (["--never-used", "correct=0.5"], "the plan has no verdict.never_used"),
    ],
)
def test_bad_options_are_one_clear_error(plan, options, text):
    bad = run("power", plan, *options)
    assert (bad.code, bad.out) == (2, "")
    assert text in bad.err
    assert len(bad.err.strip().split("\n")) <= 2


def test_a_plan_that_is_not_there_or_not_valid(plan):
    assert run("power", plan.with_name("none.yaml")).code == 2
    plan.write_text(TEXT.replace("updates: 5", "updates: five"))
    assert run("power", plan).code == 2


def test_check_and_lock_refuse_a_rule_that_can_never_hold(plan):
    plan.write_text(
        TEXT.replace(
            'op: "<=", limit: -0.15}',
            'op: "<=", limit: -0.15}\n    - {name: odd, measure: clean, compare: change_low, op: ">", limit: 1}',
        )
        + "statistics: {min_clusters: 59}\n"
    )
    for command in ("check", "lock"):
        bad = run(command, plan)
        assert bad.code == 2
        line = next(number for number, text in enumerate(plan.read_text().split("\n"), 1) if "odd" in text)
        assert f"{plan}:{line}:" in bad.err
        assert "verdict.damage[2].measure: `clean` under `change_low` can never be said from the rollouts of this plan" in bad.err
    assert not plan.with_suffix(".lock").exists()
    plan.write_text(TEXT.replace('compare: change, op: "<=", limit: -0.3}', 'op: ">", limit: 0}'))
    bad = run("lock", plan)
    assert "stop_rules[0].limit: found 0; the number is 0 or less, so the rule never holds and decides nothing" in bad.err


def test_lock_says_how_often_luck_would_decide(plan):
    locked = run("lock", plan)
    assert locked.code == 0
    words = " ".join(locked.out.split())
    assert "luck, by 1,000 simulated studies: If there were no difference at all, NOT_REPLICATED would come out in" in words
    assert "Assumed, not measured: 60% correct, 13% truncated, 5% looping" in words


def test_lock_with_json(plan):
    luck = json.loads(run("lock", plan, "--json").out)["luck"]
    assert luck["studies"] == 1000
    assert luck["labels"]["REPLICATED"]["share"] + luck["labels"]["NOT_REPLICATED"]["share"] == pytest.approx(1)
    assert luck["rates"]["correct"] == pytest.approx(0.6)
    assert 0 < luck["damaged"]["share"] < 0.1


def test_the_summary_of_lock_is_quick():
    from ablation.cli.plan_power import luck_before_lock

    loaded = load_plan(PLANS / "tessera.yaml")
    began = time.process_time()  # a busy machine does not count
    luck_before_lock(loaded)
    assert time.process_time() - began < 2
