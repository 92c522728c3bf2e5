import json
import shutil
from dataclasses import replace

import pytest

from ablation.errors import IncompleteError, IntegrityError
from ablation.rollouts.attempts import Attempts
from ablation.verdict.run import first_stable_arm, judge_run

from .study import lock_small, start_run, tell_stage, write_stage, write_stop, write_study

BOTH = {("main", "C"), ("replication", "C")}


@pytest.fixture
def study(tmp_path):
    locked = lock_small(tmp_path / "plans")
    return start_run(tmp_path / "runs" / "small", locked), locked


def codes(verdict):
    return [reason.code for reason in verdict.reasons]


def labels(verdict):
    return {one.name: one.label for one in verdict.arms}


def test_replicated(study):
    run, locked = study
    write_study(run, locked, BOTH)
    verdict = judge_run(run.root, locked)
    assert verdict.label == "REPLICATED"
    assert verdict.stable_arm == "N"
    assert labels(verdict) == {
        "main/C": "DAMAGED",
        "main/N": "STABLE",
        "main/X": "STABLE",
        "replication/C": "DAMAGED",
        "replication/N": "STABLE",
    }
    control = verdict.arms[0]
    assert [(one.rule.name, one.holds, one.value) for one in control.rules] == [
        ("clean_lost", True, -5),
        ("unfinished_gained", False, 0),
        ("looping_gained", False, 0),
        ("logprob_lost", False, 0),
    ]
    # 12 right of 24 in the sweep; the control's 7 right answers are cheaper rollouts, its tokens are counted by hand
    tokens = {"clean": lambda g: 15 + g, "wrong": lambda g: 15 + g, "cut": lambda g: 64}
    golds = [g for _ in range(2) for g in range(6) for _ in range(2)]
    start = sum(tokens[kind](g) for kind, g in zip(["clean"] * 12 + ["cut"] * 2 + ["wrong"] * 10, golds, strict=True))
    assert verdict.sweeps["main"]["total_tokens"] == start
    assert verdict.sweeps["main"]["clean"] == 12
    json.dumps(verdict.as_json(), allow_nan=False)


@pytest.mark.parametrize(
    ("damaged", "expected", "stable"),
    [
        ({("main", "C")}, ["CONTROL_NOT_DAMAGED"], "N"),
        (set(), ["CONTROL_NOT_DAMAGED", "CONTROL_NOT_DAMAGED"], "N"),
        (BOTH | {("replication", "N")}, ["NOT_STABLE_AGAIN"], "N"),
        (BOTH | {("main", "N"), ("main", "X")}, ["NO_STABLE_ARM"], None),
    ],
)
def test_not_replicated_says_why(study, damaged, expected, stable):
    run, locked = study
    write_study(run, locked, damaged)
    verdict = judge_run(run.root, locked)
    assert (verdict.label, codes(verdict), verdict.stable_arm) == ("NOT_REPLICATED", expected, stable)


def test_the_first_stable_arm_in_plan_order_is_replicated(study):
    """N is damaged, so X is the one, and its readout in the second family is what is missing."""
    run, locked = study
    write_study(run, locked, BOTH | {("main", "N")})
    assert first_stable_arm(run.root, locked) == "X"
    verdict = judge_run(run.root, locked)
    assert verdict.label == "INCOMPLETE"
    assert [(one.what, one.command) for one in verdict.missing] == [
        ("replication/X: the readout is not there", "ablation run --arm X --family replication")
    ]


def test_an_unfinished_run_says_if_replicated_can_no_longer_come_out(study):
    run, locked = study
    write_study(run, locked, {("replication", "C")})
    shutil.rmtree(run.readout("main", "X"))
    verdict = judge_run(run.root, locked)
    assert (verdict.label, codes(verdict)) == ("INCOMPLETE", ["MISSING", "REPLICATED_RULED_OUT"])
    assert "REPLICATED can no longer come out" in verdict.reasons[1].text
    assert "The control `C` was not damaged in main: " in verdict.reasons[1].text
    assert verdict.next_command == "ablation run --arm X"
    write_study(run, locked, BOTH)
    shutil.rmtree(run.readout("main", "X"))
    assert codes(judge_run(run.root, locked)) == ["MISSING"]


def test_commands_carry_the_options_of_this_run_or_are_left_out(study):
    run, locked = study
    write_study(run, locked, BOTH)
    shutil.rmtree(run.readout("main", "X"))
    own = judge_run(run.root, locked, " --plan p.yaml")
    assert (own.missing[0].command, own.next_command) == ("ablation run --arm X --plan p.yaml",) * 2
    foreign = judge_run(run.root, locked, None)
    assert (foreign.missing[0].command, foreign.next_command) == (
        f"whoever made the run `{run.root.name}` has to finish it",
        None,
    )


def test_limits_are_exact(study):
    """Case I05: -0.65 against -0.5 is a loss of exactly 0.15 and fires `<= -0.15`; the doubles differ by -0.15000000000000002
    and, the other way round, -0.35 against -0.2 by -0.14999999999999997."""
    run, locked = study
    write_study(run, locked)
    assert -0.35 - -0.2 > -0.15
    write_stage(run, locked, "main", "start", {"clean": 12, "cut": 2}, logprob=-0.2)
    for arm, logprob in (("C", -0.35), ("N", -0.3499), ("X", -0.2)):
        write_stage(run, locked, "main", arm, {"clean": 13, "cut": 2}, logprob=logprob)
    assert labels(judge_run(run.root, locked)) | {"replication/C": "", "replication/N": ""} == {
        "main/C": "DAMAGED",
        "main/N": "STABLE",
        "main/X": "STABLE",
        "replication/C": "",
        "replication/N": "",
    }


def test_nothing_sampled_yet_lists_all_and_how_to_make_it(study):
    run, locked = study
    verdict = judge_run(run.root, locked)
    assert verdict.label == "INCOMPLETE"
    second = "ablation run --arm C --family replication"
    assert [(one.what, one.command) for one in verdict.missing] == [
        ("main/start: the sweep is not there", "ablation run --arm C"),
        ("main/C: the readout is not there", "ablation run --arm C"),
        ("main/N: the readout is not there", "ablation run --arm N"),
        ("main/X: the readout is not there", "ablation run --arm X"),
        ("replication/start: the sweep is not there", second),
        ("replication/C: the readout is not there", second),
        ("replication: the first stable arm of main, which is not known yet", "ablation run --all"),
    ]
    assert verdict.next_command == "ablation run --all"
    assert codes(verdict) == ["MISSING"]
    with pytest.raises(IncompleteError, match="not known yet") as error:
        first_stable_arm(run.root, locked)
    assert error.value.hint == f"Run `ablation run --arm N --plan {locked.path}`."  # not the only locked plan in plans/ here


def test_first_stable_arm_does_not_wait_for_later_arms(study):
    run, locked = study
    write_stage(run, locked, "main", "start")
    write_stage(run, locked, "main", "N")
    assert first_stable_arm(run.root, locked) == "N"


def test_missing_rollouts_are_no_verdict(study):
    run, locked = study
    write_study(run, locked, BOTH)
    write_stage(run, locked, "main", "N", drop=3)
    verdict = judge_run(run.root, locked)
    assert verdict.label == "INCOMPLETE"
    assert verdict.missing[0].what == "main/N: the readout lacks 3 of 24 rollouts, for instance p4@medium #1"


def test_a_stopped_arm_is_part_of_the_verdict(study):
    run, locked = study
    write_study(run, locked, BOTH)
    stop = {"rule": "logprob_fell", "update": 2, "measure": "logprob", "value": -0.4, "limit": -0.3, "reason": "it fell"}
    shutil.rmtree(run.readout("main", "C"))
    write_stop(run, locked, "main", "C", stop)
    verdict = judge_run(run.root, locked)
    assert (verdict.label, codes(verdict)) == ("NOT_REPLICATED", ["STOPPED"])
    assert "`logprob_fell` after update 2 and has no readout" in verdict.reasons[0].text
    assert verdict.arms[0].label == "STOPPED"
    shutil.rmtree(run.readout("main", "N"))
    write_stop(run, locked, "main", "N", stop)
    assert first_stable_arm(run.root, locked) == "X"
    write_stage(run, locked, "main", "N")
    with pytest.raises(IntegrityError, match="says that the run was ended"):
        judge_run(run.root, locked)
    write_stop(run, locked, "main", "N", stop | {"rule": "other"})
    shutil.rmtree(run.readout("main", "N"))
    with pytest.raises(IntegrityError, match="`other` is not a stop rule of this plan"):
        judge_run(run.root, locked)


def no_steps(run, family, arm, stepped=()):
    """Audits of both updates; those in `stepped` took a step."""
    for k in (1, 2):
        path = run.audit(family, arm, k)
        path.parent.mkdir(parents=True, exist_ok=True)
        taken = k in stepped
        step = {"stepped": taken, "outcome": "stepped" if taken else "no_signal"}
        weights = dict.fromkeys(("negative_share", "net_share", "truncated_share", "kl_share"))
        path.write_text(json.dumps({"step": step, "weights": weights}))


@pytest.mark.parametrize(
    ("unstepped", "label", "found", "stable"),
    [
        ([("main", "N")], "INCOMPLETE", ["MISSING"], "X"),  # passed over: X is replicated, and has no second run yet
        ([("main", "N"), ("main", "X")], "NOT_REPLICATED", ["NO_STABLE_ARM"], None),
        ([("replication", "N")], "UNDECIDED", ["NO_STEP"], "N"),
        ([("main", "C")], "UNDECIDED", ["NO_STEP"], "N"),
    ],
)
def test_an_arm_that_took_no_step_is_neither_damaged_nor_stable(study, unstepped, label, found, stable):
    run, locked = study
    write_study(run, locked, BOTH)
    for pair in unstepped:
        no_steps(run, *pair)
    verdict = judge_run(run.root, locked)
    assert {(one.family, one.arm) for one in verdict.arms if one.label == "NO_STEP"} == set(unstepped)
    assert (verdict.label, codes(verdict), verdict.stable_arm) == (label, found, stable)
    for pair in unstepped:
        no_steps(run, *pair, stepped=[2])  # one step is enough to be judged
    assert judge_run(run.root, locked).label == "REPLICATED"


def test_an_undefined_measure_is_undecided_not_stable(study):
    run, locked = study
    write_study(run, locked, BOTH)
    write_stage(run, locked, "main", "N", {"clean": 13, "cut": 2}, logprob=float("nan"))
    verdict = judge_run(run.root, locked)
    assert (verdict.label, codes(verdict)) == ("UNDECIDED", ["UNDECIDED"])
    assert "logprob_lost: `logprob` is undefined" in verdict.reasons[0].text
    with pytest.raises(IncompleteError, match="main/N is undecided"):
        first_stable_arm(run.root, locked)


def test_a_measure_can_be_undefined_where_another_rule_fires(study):
    run, locked = study
    write_study(run, locked, BOTH)
    write_stage(run, locked, "main", "C", {"clean": 7, "cut": 2}, logprob=float("nan"))
    assert judge_run(run.root, locked).label == "REPLICATED"


@pytest.mark.parametrize(
    ("arm", "changes", "message"),
    [
        ("N", {"plan_digest": "e" * 64}, "another plan"),
        ("N", {"sampling": {"temperature": 0.5}}, "sampled with temperature 0.5; the plan says 1.0"),
        ("N", {"logprob_kind": "processed"}, "logprob_kind is processed, the sweep's is raw"),
    ],
)
def test_rollouts_of_something_else_are_refused(study, arm, changes, message):
    run, locked = study
    write_study(run, locked, BOTH)
    write_stage(run, locked, "main", arm, **changes)
    with pytest.raises(IntegrityError, match=message):
        judge_run(run.root, locked)


def test_a_moved_stage_and_a_changed_problem_file_are_refused(study):
    run, locked = study
    write_study(run, locked, BOTH)
    problems = run.problems.read_bytes()
    run.problems.write_bytes(problems.replace(b'"gold": "3"', b'"gold": "9"'))
    with pytest.raises(IntegrityError, match="not the file of training problems that the plan was locked with"):
        judge_run(run.root, locked)
    run.problems.write_bytes(problems)
    shutil.rmtree(run.readout("main", "X"))
    shutil.copytree(run.readout("main", "N"), run.readout("main", "X"))
    with pytest.raises(IntegrityError, match="holds the rollouts of main/N"):
        judge_run(run.root, locked)


def test_an_engine_that_changed_is_noted(study):
    run, locked = study
    write_study(run, locked, BOTH)
    write_stage(run, locked, "main", "X", {"clean": 13, "cut": 2}, engine={"name": "local", "dtype": "bfloat16"})
    assert judge_run(run.root, locked).notes == ["main/X: the engine changed between sweep and readout: dtype None -> bfloat16"]


def test_audits_are_shown_as_ranges(study):
    run, locked = study
    write_study(run, locked, BOTH)
    for k, share in ((1, 0.7), (2, 0.6)):
        path = run.audit("main", "C", k)
        path.parent.mkdir()
        weights = {"negative_share": share, "net_share": 1 - 2 * share, "truncated_share": 0.2, "kl_share": None}
        path.write_text(json.dumps({"weights": weights}))
    shares = judge_run(run.root, locked).audits["main/C"]
    assert shares == {"negative_share": [0.6, 0.7], "net_share": [1 - 1.4, 1 - 1.2], "truncated_share": [0.2, 0.2]}
    path.write_text("{}")
    with pytest.raises(IntegrityError, match="is not an audit of weights"):
        judge_run(run.root, locked)


def test_row_order_of_a_stage_does_not_matter(study):
    from ablation.rollouts.store import finish_stage, read_part, write_part

    run, locked = study
    write_study(run, locked, BOTH)
    before = judge_run(run.root, locked).as_json()
    for folder in (run.sweep("main"), run.readout("main", "N")):
        part = folder / "part-000.parquet"
        rows = read_part(part)
        from ablation.rollouts.store import part_info

        info = part_info(part)
        write_part(part, info, rows[::-1])
        finish_stage(folder, info, [part.name])
        tell_stage(run, locked, folder)
    after = replace(judge_run(run.root, locked), attempts=Attempts())  # each was told of twice, with another digest
    left_out = {"journal": None, "also_run": None}
    assert after.as_json() | left_out == before | left_out


def test_sections_of_a_later_phase_are_not_run(tmp_path):
    from .study import plan_dict

    rule = {"name": "few", "measure": "looping", "compare": "value", "op": "<=", "limit": 8}
    verdict = plan_dict()["verdict"] | {
        "held_out": {"rollouts": 24, "rules": [rule], "blinded_read": {"pairs": 12, "passes": 10}},
        "release": {"guards": [rule]},
    }
    locked = lock_small(tmp_path / "plans", verdict=verdict)
    run = start_run(tmp_path / "run", locked)
    write_study(run, locked, BOTH)
    found = judge_run(run.root, locked)
    assert found.labels() == {"replication": "REPLICATED", "held_out": "NOT_RUN", "release": "NOT_RUN"}


@pytest.mark.parametrize("share", ["half", float("nan"), [0.5], 10**400])
def test_an_audit_whose_shares_are_no_numbers_is_refused(study, share):
    run, locked = study
    write_study(run, locked, BOTH)
    shares = dict.fromkeys(("negative_share", "net_share", "truncated_share", "kl_share"), 0.5)
    path = run.audit("main", "C", 1)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"weights": shares | {"net_share": share}}))
    with pytest.raises(IntegrityError, match="audit.json: (is not an audit of weights|does not tell whether)"):
        judge_run(run.root, locked)


def test_a_damage_rule_that_cannot_fire_is_named_and_no_label_changes(study):
    """The start of `main` has 2 clean rollouts: it cannot lose 3."""
    run, locked = study
    write_study(run, locked, BOTH)
    assert judge_run(run.root, locked).as_json()["cannot_fire"] == []
    write_stage(run, locked, "main", "start", {"clean": 2, "cut": 2})
    write_stage(run, locked, "main", "C", {"clean": 0, "cut": 2})
    verdict = judge_run(run.root, locked)
    why = "the start has 2 clean rollouts, so the change is -2 at the lowest and the limit is -3"
    assert verdict.as_json()["cannot_fire"] == [{"family": "main", "rule": "clean_lost", "why": why}]
    assert (verdict.label, labels(verdict)["main/C"], codes(verdict)) == ("NOT_REPLICATED", "STABLE", ["CONTROL_NOT_DAMAGED"])
    assert verdict.reasons[0].text.endswith(f"no damage for them to prevent. `clean_lost` could not fire: {why}.")


def test_updates_without_a_step_are_counted(study):
    run, locked = study
    write_study(run, locked, BOTH)
    for k, outcome in ((1, "stepped"), (2, "empty_step")):
        path = run.audit("main", "N", k)
        path.parent.mkdir()
        shares = dict.fromkeys(("negative_share", "net_share", "truncated_share", "kl_share"), 0.5 if k == 1 else None)
        path.write_text(json.dumps({"weights": shares, "step": {"outcome": outcome, "stepped": k == 1}}))
    verdict = judge_run(run.root, locked)
    counted = {"stepped": 1, "updates": 2, "outcomes": {"empty_step": 1, "stepped": 1}}
    assert verdict.as_json()["steps"] == {"main/N": counted}
    assert verdict.label == "REPLICATED"
