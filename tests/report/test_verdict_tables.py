"""Golden pages. After a change on purpose: `UPDATE_GOLDEN=1 python -m pytest tests/report`, and read the difference."""

from __future__ import annotations

import io
import json
import os
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from ablation.plan.phase2 import Guard
from ablation.power.guards import with_false_alarms
from ablation.report.terminal import plain_console
from ablation.report.verdict_parts import shown_number
from ablation.report.verdict_tables import arm_sentences, arms_in_words, print_verdict
from ablation.rollouts.attempts import Attempts
from ablation.verdict.reported import judge_reported
from ablation.verdict.rules import COMPUTED, RuleResult
from ablation.verdict.run import judge_run
from tests.audit.build_phase2 import make_phase2
from tests.study.evaluations import make
from tests.verdict.study import lock_small, plan_dict, start_run, write_stage, write_stop, write_study
from tests.verdict.test_phase2 import compare, deviate
from tests.verdict.test_reported import FILES, TESSERA

GOLDEN = Path(__file__).parent / "golden"


def page(verdict, plan, width=80, **options):
    out = io.StringIO()
    journal = verdict.journal and verdict.journal | {"head": "0" * 64}  # it depends on the time
    console = plain_console(file=out, width=width, **options)
    print_verdict(replace(verdict, digest="0" * 64, journal=journal, attempts=Attempts()), plan, console)  # so do these
    return "".join(line.rstrip() + "\n" for line in out.getvalue().splitlines())


def check(name, text, wide=80):
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()
    assert max(map(len, text.splitlines())) <= wide


@pytest.fixture
def small(tmp_path):
    locked = lock_small(tmp_path / "plans")
    run = start_run(tmp_path / "run", locked)
    write_study(run, locked, {("main", "C"), ("replication", "C")})
    return run, locked


def test_the_studys_page():
    check("study.txt", page(judge_reported(FILES / "study.yaml", TESSERA), TESSERA.plan))


def test_the_page_of_a_run_with_undefined_ratios_an_audit_and_a_stop(small):
    run, locked = small
    write_stage(run, locked, "main", "X", {"wrong": 24})
    for k in (1, 2):
        path = run.audit("main", "C", k)
        path.parent.mkdir()
        shares = {"negative_share": 0.5 + 0.1 * k, "net_share": -0.2 * k, "truncated_share": 0.2, "kl_share": 0.0}
        path.write_text(json.dumps({"weights": shares}))
    text = page(judge_run(run.root, locked), locked.plan)
    check("run.txt", text)
    folder = run.readout("main", "X")
    for file in folder.iterdir():
        file.unlink()
    stop = {"rule": "logprob_fell", "update": 2, "reason": "logprob against update 1 is -0.4, and the plan stops at <= -0.3"}
    write_stop(run, locked, "main", "X", stop)
    text = page(judge_run(run.root, locked), locked.plan)
    assert "main/X: stop rule `logprob_fell` ended the run after update 2, so it has no" in text
    assert "none fired" not in text


def test_an_unfinished_run_says_what_to_do(small):
    run, locked = small
    (run.readout("replication", "N") / "stage.json").unlink()
    text = page(judge_run(run.root, locked), locked.plan)
    assert text.count("Verdict: INCOMPLETE  (computed from rollouts)\n") == 2
    assert "  replication/N: the readout is not there\n    ablation run --arm N --family replication\n" in text
    assert "--all" not in text  # one command makes all that is missing


def test_a_study_that_was_hardly_begun_lists_each_thing_once(tmp_path):
    locked = lock_small(tmp_path / "plans")
    run = start_run(tmp_path / "run", locked)
    write_stage(run, locked, "main", "start")
    write_stage(run, locked, "main", "C")
    check("unfinished.txt", page(judge_run(run.root, locked, f" --plan {'long/' * 10}small.yaml"), locked.plan), wide=115)


def test_a_control_that_is_never_damaged_is_said_once_and_first(tmp_path):
    locked = lock_small(tmp_path / "plans")
    run = start_run(tmp_path / "run", locked)
    write_study(run, locked)
    text = page(judge_run(run.root, locked), locked.plan)
    assert text.startswith("small: Does the weighting matter?\nDigest: " + "0" * 64 + "\n\nVerdict: NOT_REPLICATED")
    assert text.endswith("\nVerdict: NOT_REPLICATED  (computed from rollouts)\n")
    assert text.count("CONTROL_NOT_DAMAGED") == 1
    assert "The control `C` was not damaged in main and replication: no damage rule fired." in " ".join(text.split())


def write_steps(run, name, outcomes):
    for k, outcome in enumerate(outcomes, start=1):
        path = run.audit(*name.split("/"), k)
        path.parent.mkdir()
        stepped = outcome == "stepped"
        shares = dict.fromkeys(("negative_share", "net_share", "truncated_share", "kl_share"), 0.25 if stepped else None)
        path.write_text(json.dumps({"weights": shares, "step": {"outcome": outcome, "stepped": stepped}}))


def test_arms_without_a_step_are_told_under_the_headline_and_stay_in_the_audit(small):
    run, locked = small
    for name in ("main/C", "main/N"):
        write_steps(run, name, ["no_signal", "no_signal"])
    write_steps(run, "main/X", ["stepped", "nonfinite"])
    write_steps(run, "replication/C", ["empty_step", "no_signal"])
    write_steps(run, "replication/N", ["no_signal"])  # the audit of update 2 is not there: nothing is said of the readout
    text = page(judge_run(run.root, locked), locked.plan, width=200)
    head, rest = text.split("\nArms\n")
    assert head.splitlines()[-5:] == [
        "C, N: 0 of 2 updates in main took a step (no_signal): their readouts are of the unchanged start.",
        "X: 1 of 2 updates in main took a step (the rest: nonfinite).",
        "C: 0 of 2 updates in replication took a step (1 empty_step, 1 no_signal): its readout is of the unchanged start.",
        "N: 0 of 1 updates in replication took a step (no_signal).",
        "0% of the answers that ended could not be read (7 stages).",
    ]
    table = rest.split("Audit of the weights")[1].splitlines()
    assert [line.split() for line in table[2:5]] == [
        ["main/C:", "no", "step", "-", "-", "-", "-"],
        ["main/N:", "no", "step", "-", "-", "-", "-"],
        ["main/X", "25", "25", "25", "25"],
    ]


def test_a_rule_that_cannot_fire_is_noted_under_the_damage_rules(small):
    run, locked = small
    write_stage(run, locked, "main", "start", {"clean": 2, "cut": 2})
    text = page(judge_run(run.root, locked), locked.plan, width=200)
    note = "main: clean_lost cannot fire: the start has 2 clean rollouts, so the change is -2 at the lowest and the limit is -3."
    assert text.count(note) == 1
    assert text.index("Damage rules") < text.index(note) < text.index("Stop rules")


def test_arms_are_told_by_what_they_add(tmp_path):
    arms = {
        "control": {"weighting": "token", "note": "the usual one"},
        "again": {"weighting": "token", "note": "the [same] once more"},
        "per_rollout": {"weighting": "rollout", "learning_rate": 0.002},
    }
    replication = {"control": "control", "family": "replication"}
    locked = lock_small(tmp_path, arms=arms, verdict=plan_dict()["verdict"] | {"replication": replication})
    out = io.StringIO()
    plain_console(file=out, width=200).print(arms_in_words(locked.plan))
    token = "A rollout's total weight is its advantage times its length against its group's mean: long rollouts weigh more."
    assert [line.rstrip() for line in out.getvalue().splitlines()] == [
        "Arms",
        f"`control`      The control. {token}",
        "`again`        Like `control`. the [same] once more",
        "`per_rollout`  A rollout's total weight is its advantage, whatever its length. Its learning rate is 0.002, not 0.001.",
    ]


def test_no_color_is_respected(monkeypatch):
    verdict = judge_reported(FILES / "study.yaml", TESSERA)
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1;31mNOT_REPLICATED" in page(verdict, TESSERA.plan, force_terminal=True, color_system="standard")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[1;31m" not in page(verdict, TESSERA.plan, force_terminal=True)


@pytest.mark.parametrize(
    ("value", "op", "limit", "compare", "measure", "shown"),
    [
        ("3.4976", "<", 3.5, "value", "logprob", "3.498"),
        ("3.49996", "<", 3.5, "value", "logprob", "3.49996"),  # case I05: 3.500 would be on the other side
        ("-0.15", "<=", -0.15, "change", "logprob", "-0.150"),
        ("-0.1499999", "<=", -0.15, "change", "logprob", "-0.1499999"),
        ("1.2499", "<=", 1.25, "ratio", "agent_turn", "1.2499"),
        ("-25", "<=", -21, "change", "clean", "-25"),
        ("108", ">=", 103, "value", "correct", "108"),
    ],
)
def test_a_printed_number_is_on_its_side_of_the_limit(value, op, limit, compare, measure, shown):
    rule = Guard(name="r", measure=measure, compare=compare, op=op, limit=limit)
    assert shown_number(RuleResult(rule, True, Fraction(value), COMPUTED)) == shown


def test_the_page_of_all_of_phase_2(tmp_path):
    """No golden page: which answer is X is drawn anew each time. What matters is there, in 80 columns."""
    made = make_phase2(tmp_path)
    found = with_false_alarms(judge_run(made.run.root, made.locked), made.plan)
    text = page(found, made.plan)
    assert max(map(len, text.splitlines())) <= 80
    packed = " ".join(text.split())
    for part in (
        "Compared on held-out, 24 rollouts a row",
        "start (N@2) 15 0 2 2 0.0% N@2 16 0 1 1 0.85x (0.62-1.00) 1.00x 0.0%",
        "N@4: the start, against the one that was sampled for N@2: 15 correct, 15 before (+0); 24 of 24 rollouts of one seed",
        "few_cut: Wilson score interval with the effective number of rollouts, 6 clusters, 90%, pooled.",
        "PASSED: 3 of 4 pairs pass; 3 are needed.",
        "Cohen's kappa of anna/ben, on whether a pair passes: 0.00.",
        "N@4 yes 15 selected",
        "calls +0 <= 0 held 26%",  # 1 of 13 with Jeffreys' prior: exact, see tests/power/test_guards.py
        "typical_turn - <= 1.25 undecided: all resamples give not simulated",
        "Held-out N@2: WIN_VERIFIED BLINDED_READ_PASSED",
        "Held-out N@4: WIN_UNVERIFIED NO_BLINDED_READ",
        "ablation blind pairs --subject N@4",
        "Selection N@4: SELECTED",
        "Release N@4: UNDECIDED MAIN_SET: The main set says WIN.",
        "shorter: tokens_per_correct less than C (p by cluster_bootstrap, alpha 0.05, holm; main; effects are ratios to C)",
        "speak of the recipe: recipe (2 seeds).",
    ):
        assert part in packed, part


def test_a_label_that_was_not_allowed_and_one_under_a_deviation(tmp_path):
    run, locked = make(tmp_path, damaged=frozenset())
    deviate(run, locked, "held-out")
    compare(run, locked, "never-used")
    found = judge_run(run.root, locked)
    text = page(found, locked.plan)
    assert "Never-used N@2: CONFIRMED (deviation 1; not allowed)" in text
    assert "GATE_WAS_SHUT: never-used/N@2 was sampled although its gate was shut" in text
    assert "Verdict: NOT_REPLICATED (deviation 1)" in text


def test_thousands_of_arms_are_told_of_in_no_time(tmp_path):
    locked = lock_small(tmp_path / "plans")
    plan = locked.plan
    many = plan.model_copy(update={"arms": plan.arms | {f"Y{number}": plan.arms["N"] for number in range(10_000)}})
    started = time.monotonic()
    said = dict(arm_sentences(many))
    assert time.monotonic() - started < 20  # with each arm compared with each it takes minutes
    assert said["Y9999"] == said["Y0"] and said["Y0"].startswith("Like `N`.")
    assert [(name, said[name]) for name in plan.arms] == arm_sentences(plan)
