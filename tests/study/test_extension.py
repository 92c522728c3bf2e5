"""The gates around an extension, at an open study whose stages are there already: nothing is sampled or trained here."""

import json

import pytest

from ablation.errors import ExtensionPaused, GateError, IncompleteError, IntegrityError, StopRuleFired, UsageError
from ablation.files import sha256_file, write_folder, write_json
from ablation.plan.deviations import record_deviation
from ablation.rollouts.folder import measures_file
from ablation.rollouts.journal_chain import check_journal, read_journal
from ablation.study.extension import check_request
from ablation.study.runner import open_study
from ablation.verdict.run import AUDITED, judge_run
from tests.study.test_deviations import Said
from tests.verdict.study import lock_small, start_run, tell, write_stage, write_study

EXTENSION = {"updates": 6, "checks": [4, 6], "eligible": [6]}
REPLICATED = {("main", "C"), ("replication", "C")}


def make(folder, damaged=REPLICATED, **fields):
    """(run, plan): every stage of the study, extension updates 3 to 6 of N, and no check yet."""
    locked = lock_small(folder / "plans", extension=EXTENSION | fields)
    run = start_run(folder / "runs" / "small", locked)
    write_study(run, locked, damaged)
    for arm in "NX":
        for k in range(1, 7):
            train(run, locked, arm, k)
    return run, locked


def train(run, locked, arm, k, logprob=-0.5):
    """A trained update: its audit, its event and its checkpoint. In the extension the audited shares are higher."""
    shares = dict.fromkeys(AUDITED, 0.5 if k <= 2 else 0.9)
    write_json(run.audit("main", arm, k), {"metrics": {"logprob": logprob}, "weights": shares, "step": {"outcome": "stepped"}})
    tell(run, locked, "update_trained", arm=f"main/{arm}", update=k, audit_sha256=sha256_file(run.audit("main", arm, k)))
    write_folder(run.checkpoint("main", arm, k), lambda folder: (folder / "adapter").write_bytes(b"a"))


def check(run, locked, arm, k, kinds, **more):
    """The rollouts of a check. The sweep has 12 clean ones and 2 that were cut."""
    folder = run.check("main", arm, k)
    write_stage(run, locked, "main", arm, kinds, folder=folder, stage="check", update=k, **more)
    write_json(measures_file(folder), {})


def extend(run, locked, arm="N", to=6) -> list[str]:
    said = Said()
    with open_study(locked, run.root, said) as study:
        study.extend_arm(check_request(locked, None, to), arm, to)
    return [line for line in said.lines if not line.startswith("note:")]


def events(run, kind):
    return [event for event in read_journal(run.journal) if event["event"] == kind]


@pytest.fixture
def study(tmp_path):
    run, locked = make(tmp_path)
    verdict = judge_run(run.root, locked)
    assert verdict.label == "REPLICATED" and verdict.audits["main/N"]["net_share"] == [0.5, 0.5]
    return run, locked


def test_two_checks_without_damage(study):
    run, locked = study
    check(run, locked, "N", 4, {"clean": 13, "cut": 2})
    check(run, locked, "N", 6, {"clean": 10, "cut": 2})  # two fewer: the rule asks for three
    assert extend(run, locked) == [
        "main/N: check after update 4: STABLE",
        "main/N: check after update 6: STABLE",
    ]
    for k, eligible in ((4, False), (6, True)):
        path = run.check_result("main", "N", k)
        record = json.loads(path.read_bytes())
        assert (record["label"], record["pauses"], record["eligible"]) == ("STABLE", None, eligible)
        [event] = [one for one in events(run, "check_judged") if one["update"] == k]
        assert event["check_sha256"] == sha256_file(path) and event["label"] == "STABLE"
    clean = json.loads(run.check_result("main", "N", 6).read_bytes())["rules"][0]
    assert (clean["name"], clean["value"], clean["limit"], clean["holds"]) == ("clean_lost", -2, -3, False)
    assert [(one["arm"], one["update"]) for one in events(run, "extension_reached")] == [("main/N", 6)]
    assert extend(run, locked) == ["main/N: finished already, up to update 6"]
    assert extend(run, locked, to=2) == ["main/N: finished already, up to update 2"]
    assert len(events(run, "check_judged")) == 2 and len(events(run, "extension_reached")) == 1


def test_damage_pauses_until_a_deviation_names_this_arm_and_this_check(study):
    run, locked = study
    check(run, locked, "N", 4, {"clean": 9, "cut": 2})
    check(run, locked, "N", 6, {"clean": 12, "cut": 2})
    with pytest.raises(ExtensionPaused) as caught:
        extend(run, locked)
    assert caught.value.exit_code == 5
    assert caught.value.message == (
        "main/N: the check after update 4 pauses the extension: clean_lost: lost 3 or more clean rollouts against the sweep"
    )
    command = f"`ablation plan deviate {locked.path} --opens extension-pause:N@4 --seen results --reason ...`"
    assert command in caught.value.hint
    assert not run.check_result("main", "N", 6).exists()
    assert extend(run, locked, to=3) == ["main/N: finished already, up to update 3"]
    for gate in ("extension-pause:X@4", "extension-pause:N@6", "extension"):
        record_deviation(locked, reason="Another one than is needed.", seen="results", opens=[gate])
        with pytest.raises(ExtensionPaused):
            extend(run, locked)
    record_deviation(locked, reason="We want to see where it goes.", seen="results", opens=["extension-pause:N@4"])
    assert extend(run, locked) == [
        "main/N: is extended under deviation 3",
        "main/N: goes on past the check after update 4 under deviation 4",
        "main/N: check after update 6: STABLE",
    ]
    assert json.loads(run.check_result("main", "N", 4).read_bytes())["eligible"] is False
    verdict = judge_run(run.root, locked)
    assert verdict.shown(verdict.label) == "REPLICATED (deviations 1, 2, 3, 4)"


def test_what_cannot_be_said_pauses_too(tmp_path):
    own = [{"name": "longer", "measure": "clean_length", "compare": "ratio_low", "op": ">", "limit": 2}]
    run, locked = make(tmp_path, damage=own)
    check(run, locked, "N", 4, {})  # nothing clean: there is no length to compare
    with pytest.raises(ExtensionPaused, match="longer cannot be said: "):
        extend(run, locked, to=4)
    record = json.loads(run.check_result("main", "N", 4).read_bytes())
    assert (record["label"], record["eligible"]) == ("UNDECIDED", False)
    assert [rule["name"] for rule in record["rules"]] == ["longer"]


def test_refused_without_replicated_and_opened_by_a_deviation(tmp_path):
    run, locked = make(tmp_path, damaged={("main", "C")})
    check(run, locked, "N", 4, {"clean": 12, "cut": 2})
    with pytest.raises(GateError, match="the extension needs REPLICATED; the verdict on this run is NOT_REPLICATED") as caught:
        extend(run, locked, to=4)
    assert caught.value.exit_code == 4 and "--opens extension --seen results" in caught.value.hint
    assert not run.check_result("main", "N", 4).exists()
    record_deviation(locked, reason="The control was damaged in one family.", seen="results", opens=["extension"])
    lines = extend(run, locked, to=4)
    said = "main/N: the verdict on this run is NOT_REPLICATED, not REPLICATED; is extended under deviation 1"
    assert lines == [said, "main/N: check after update 4: STABLE"]
    assert judge_run(run.root, locked).as_json()["label"] == "NOT_REPLICATED (deviation 1)"


def test_an_arm_that_the_plan_does_not_extend_is_named_under_a_deviation(study):
    run, locked = study
    check(run, locked, "X", 4, {"clean": 12, "cut": 2})
    record_deviation(locked, reason="We want to see the other one.", seen="results", opens=["extension"])
    assert extend(run, locked, "X", 4)[0] == "main/X: the plan extends N, not X; is extended under deviation 1"


def test_only_the_arms_that_the_plan_extends(tmp_path):
    run, locked = make(tmp_path / "first")
    with pytest.raises(GateError, match="extension.arms: the plan extends N, not X"):
        extend(run, locked, "X")
    run, locked = make(tmp_path / "named", arms=["X"])
    with pytest.raises(GateError, match="extension.arms: the plan extends X, not N"):
        extend(run, locked, "N")
    check(run, locked, "X", 4, {"clean": 12, "cut": 2})
    assert extend(run, locked, "X", to=4) == ["main/X: check after update 4: STABLE"]


def test_an_arm_without_its_end_is_not_extended(study):
    run, locked = study
    record_deviation(locked, reason="An arm that is not there yet.", seen="results", opens=["extension"])
    (run.readout("main", "X") / "stage.json").rename(run.root / "kept")
    with pytest.raises(IncompleteError, match="main/X: has no readout yet") as caught:
        extend(run, locked, "X")
    assert caught.value.hint == f"First: ablation run --arm X --plan {locked.path}"
    tell(run, locked, "arm_stopped", arm="main/X", rule="logprob_fell")
    write_json(run.stopped("main", "X"), {"rule": "logprob_fell", "update": 2})
    with pytest.raises(GateError, match="main/X: a stop rule ended it"):
        extend(run, locked, "X")


def test_the_command_for_a_missing_readout_names_family_plan_and_run_folder(tmp_path):
    run, locked = make(tmp_path, family="replication")
    elsewhere = run.root.with_name("else where")
    run.root.rename(elsewhere)
    record_deviation(locked, reason="An arm that is not there yet.", seen="results", opens=["extension"])
    with open_study(locked, elsewhere, Said()) as study, pytest.raises(IncompleteError) as caught:
        study.extend_arm("replication", "X", 4)
    assert caught.value.hint == f"First: ablation run --arm X --family replication --plan {locked.path} --run '{elsewhere}'"


def test_stop_rules_end_an_extension_against_update_1_and_leave_the_verdict_alone(study):
    run, locked = study
    train(run, locked, "N", 3, logprob=-0.9)  # 0.4 below update 1
    before = judge_run(run.root, locked).as_json()
    for _ in range(2):
        with pytest.raises(StopRuleFired, match="main/N: stop rule `logprob_fell` ended the run after update 3"):
            extend(run, locked)
    assert not run.stopped("main", "N").exists()
    record = json.loads(run.extension_stopped("main", "N").read_bytes())
    assert (record["rule"], record["update"], record["value"]) == ("logprob_fell", 3, pytest.approx(-0.4))
    [event] = events(run, "extension_stopped")
    assert event["stopped_sha256"] == sha256_file(run.extension_stopped("main", "N"))
    after = judge_run(run.root, locked).as_json()
    moved = ("journal", "also_run")  # as a verdict is compared with its stored form
    assert {name: after[name] for name in after if name not in moved} == {
        name: before[name] for name in before if name not in moved
    }


@pytest.mark.parametrize(
    ("family", "to", "message"),
    [
        (None, 7, "extension.updates: the plan ends at update 6; found --continue-to 7"),
        ("replication", 6, "extension.family: an arm is extended in main, not in replication"),
    ],
)
def test_more_than_the_plan_allows_is_wrong_use(study, family, to, message):
    with pytest.raises(UsageError) as caught:
        check_request(study[1], family, to)
    assert caught.value.message == f"{study[1].path}: {message}"


def test_a_plan_without_the_section_extends_nothing(tmp_path):
    with pytest.raises(UsageError, match="the plan has no section `extension`"):
        check_request(lock_small(tmp_path / "plans"), None, 6)


def test_a_record_that_was_changed_or_put_there_is_found(study):
    run, locked = study
    check(run, locked, "N", 4, {"clean": 9, "cut": 2})
    with pytest.raises(ExtensionPaused):
        extend(run, locked)
    path = run.check_result("main", "N", 4)
    record = json.loads(path.read_bytes())
    write_json(path, record | {"pauses": None})
    with pytest.raises(IntegrityError, match="tells of another main/N/check-4/check.json than the one that is there"):
        extend(run, locked)
    write_json(path, record)
    check_journal(run.root, locked.digest)
    write_json(run.check_result("main", "X", 4), record)
    with pytest.raises(IntegrityError, match="does not tell of the result of a check, main/X/check-4/check.json"):
        extend(run, locked)


def test_a_checkpoint_that_is_not_whole_is_named_before_anything_is_loaded(study):
    run, locked = study
    check(run, locked, "N", 4, {"clean": 12, "cut": 2})
    with open_study(locked, run.root, Said()) as opened:
        (run.checkpoint("main", "N", 2) / "adapter").write_bytes(b"b")
        opened.models._policy = object()
        with pytest.raises(IntegrityError, match="update-2/checkpoint: is not what was saved after update 2"):
            opened.models.hold("main", "N", 2)


def test_stop_rules_are_looked_at_before_the_next_update_also_after_a_kill(tmp_path):
    """Update 2 was trained and saved and the runner killed before it looked: the readout must not begin."""
    locked = lock_small(tmp_path / "plans")
    run = start_run(tmp_path / "run", locked)
    write_stage(run, locked, "main", "start", {"clean": 12})
    train(run, locked, "C", 1)
    train(run, locked, "C", 2, logprob=-0.8)
    with (
        open_study(locked, run.root, Said()) as opened,
        pytest.raises(StopRuleFired, match="`logprob_fell` ended the run after update 2"),
    ):
        opened.run_arm("main", "C")
    assert opened.models._policy is None and run.stopped("main", "C").is_file() and not run.readout("main", "C").exists()
