"""Sections of phase 2 on a study whose stages are written by hand: 24 rollouts a model on every set."""

from __future__ import annotations

import json

import pytest

from ablation.errors import IntegrityError
from ablation.files import sha256_file
from ablation.ledger.ledger import ledger_path, write_mark
from ablation.plan.deviations import record_deviation
from ablation.problems.problem import load_problems
from ablation.study.deviations import take_up_deviations
from ablation.study.journal import Journal
from ablation.verdict.phase2 import section_label, selected_subject
from ablation.verdict.run import judge_run
from tests.audit import build_phase2
from tests.audit.build_phase2 import make_phase2
from tests.blind import made
from tests.study.evaluations import RULE, lock_phase2, make
from tests.study.evaluations import write_side as write_one_side
from tests.verdict.study import start_run, write_stage, write_study

BOTH = frozenset({("main", "C"), ("replication", "C")})


def write_side(run, locked, name, subject, side, kinds=None, **more):
    """A stage of a comparison, with the run's copy of the set."""
    run.set_problems(name).parent.mkdir(parents=True, exist_ok=True)
    run.set_problems(name).write_bytes((locked.path.parent / f"{name}.jsonl").read_bytes())
    write_one_side(run, locked, name, subject, side, kinds, **more)


def compare(run, locked, name, subject="N@2", kinds=None, reference=None):
    """Both stages of a comparison: 12 clean rollouts of the start against what `kinds` say."""
    write_side(run, locked, name, subject, "reference", reference or {"clean": 12, "cut": 2})
    write_side(run, locked, name, subject, "subject", kinds or {"clean": 13, "cut": 1})


def deviate(run, locked, *gates):
    journal = Journal(run.journal, locked.digest)
    record_deviation(locked, reason="the rest is wanted anyway", seen="results", opens=gates)
    take_up_deviations(run, locked, journal)
    journal.close()


def section(run, locked, name):
    return judge_run(run.root, locked).sections[name]


def test_what_was_not_sampled_is_not_run(tmp_path):
    run, locked = make(tmp_path)
    found = judge_run(run.root, locked)
    assert found.labels() == {
        "replication": "REPLICATED",
        "held_out": "NOT_RUN",
        "never_used": "NOT_RUN",
        "main": "NOT_RUN",
        "release": "NOT_RUN",
    }


def test_a_win_without_a_read_is_unverified_and_the_read_is_named(tmp_path):
    run, locked = make(tmp_path)
    compare(run, locked, "held-out", "N@2", {"wrong": 6, "clean": 13}, {"wrong": 6, "clean": 12})
    found = section(run, locked, "held_out")
    assert (found.label, found.subject, found.decided.row) == ("WIN_UNVERIFIED", "N@2", 2)
    assert [(one.rule.name, one.holds, one.value) for one in found.rules] == [("kept", True, 1)]
    assert [one.code for one in found.reasons] == ["NO_BLINDED_READ"]
    assert [one.command for one in found.missing] == ["ablation blind pairs --subject N@2"]
    assert found.wrong == []
    assert section_label(run.root, locked, "held_out", "N@2") == "WIN_UNVERIFIED"
    assert section_label(run.root, locked, "held_out", "X@2") == "NOT_RUN"
    json.dumps(judge_run(run.root, locked).as_json(), allow_nan=False)


def test_a_read_that_the_rollouts_cannot_fill_is_no_pass_and_says_so(tmp_path):
    run, locked = make(tmp_path)
    compare(run, locked, "held-out")  # no answer at effort medium is right
    found = section(run, locked, "held_out")
    assert found.label == "WIN_UNVERIFIED"
    assert [one.code for one in found.reasons] == ["READ_TOO_FEW_PAIRS", "NO_BLINDED_READ"]
    assert found.missing == []


@pytest.mark.parametrize(("clean", "label"), [(9, "WIN_UNVERIFIED"), (8, "NO_WIN")])
def test_the_limit_itself_passes(tmp_path, clean, label):
    run, locked = make(tmp_path)
    compare(run, locked, "held-out", kinds={"clean": clean})
    assert section(run, locked, "held_out").label == label


def test_half_a_comparison_is_incomplete(tmp_path):
    run, locked = make(tmp_path)
    write_side(run, locked, "held-out", "N@2", "reference", {"clean": 12})
    found = section(run, locked, "held_out")
    assert found.label == "INCOMPLETE"
    assert [(one.what, one.command) for one in found.missing] == [
        ("held-out/N@2: the rollouts of the subject are not there", "ablation evaluate held-out --subject N@2")
    ]
    write_side(run, locked, "held-out", "N@2", "subject", {"clean": 12}, drop=3)
    found = section(run, locked, "held_out")
    assert found.label == "INCOMPLETE"
    assert found.missing[0].what.startswith("held-out/N@2: the rollouts of the subject lacks 3 of 24 rollouts")


def test_a_seed_that_is_not_the_partner_s_is_no_comparison(tmp_path):
    run, locked = make(tmp_path)
    write_side(run, locked, "held-out", "N@2", "reference", {"clean": 12})
    folder = run.evaluated("held-out", "N@2")
    write_stage(run, locked, "replication", "N", folder=folder, stage="held-out", update=2)
    with pytest.raises(IntegrityError, match=r"holds the rollouts of replication/N held-out 2; they were moved here"):
        judge_run(run.root, locked)


def test_another_set_than_the_locked_one_is_refused(tmp_path):
    run, locked = make(tmp_path)
    compare(run, locked, "held-out")
    path = run.set_problems("held-out")
    path.write_bytes(path.read_bytes().replace(b"held-out 0?", b"held-out 9?"))
    with pytest.raises(IntegrityError, match=r"held-out/problems\.jsonl: is not the file that the plan was locked with"):
        judge_run(run.root, locked)


def test_a_shut_gate_without_deviation_is_shown_beside_the_label(tmp_path):
    run, locked = make(tmp_path, damaged=frozenset({("main", "C")}))
    compare(run, locked, "held-out")
    found = judge_run(run.root, locked)
    one = found.sections["held_out"]
    assert found.label == "NOT_REPLICATED"
    assert found.shown_section(one) == "WIN_UNVERIFIED (not allowed)"
    assert [reason.code for reason in one.wrong] == ["GATE_WAS_SHUT"]
    assert one.wrong[0].text == (
        "held-out/N@2 was sampled although its gate was shut, and no deviation opened `held-out`: phase 2 needs REPLICATED, and the "
        "replication says NOT_REPLICATED."
    )
    assert found.as_json()["labels"]["held_out"] == "WIN_UNVERIFIED (not allowed)"


def test_a_deviation_that_came_later_opens_nothing(tmp_path):
    run, locked = make(tmp_path, damaged=frozenset({("main", "C")}))
    compare(run, locked, "held-out")
    deviate(run, locked, "held-out")
    found = judge_run(run.root, locked)
    assert found.shown_section(found.sections["held_out"]) == "WIN_UNVERIFIED (deviation 1; not allowed)"
    assert "no deviation opened `held-out` before it was sampled" in found.sections["held_out"].wrong[0].text


def test_never_used_needs_a_verified_win(tmp_path):
    run, locked = make(tmp_path)
    compare(run, locked, "held-out")
    compare(run, locked, "never-used")
    found = section(run, locked, "never_used")
    assert found.label == "CONFIRMED"
    assert "it needs WIN_VERIFIED on the held-out problems, and N@2 has WIN_UNVERIFIED there" in found.wrong[0].text


def test_several_subjects_and_the_one_that_the_headline_is_of(tmp_path):
    run, locked = make(tmp_path)
    compare(run, locked, "held-out", "C@2", {"clean": 4})
    assert section(run, locked, "held_out").subject == "C@2"
    compare(run, locked, "held-out", "X@2", {"clean": 15})
    compare(run, locked, "held-out", "N@2")
    found = section(run, locked, "held_out")
    assert (found.subject, found.label) == ("N@2", "WIN_UNVERIFIED")
    assert [(one.subject, one.label) for one in found.others] == [("C@2", "NO_WIN"), ("X@2", "WIN_UNVERIFIED")]


@pytest.mark.parametrize(
    ("main", "guards", "label"),
    [(13, True, "RELEASE"), (5, True, "NO_RELEASE"), (13, False, "INCOMPLETE"), (5, False, "NO_RELEASE")],
)
def test_release_needs_the_main_set_and_every_guard(tmp_path, main, guards, label):
    verdict = lock_phase2(tmp_path / "other").plan.model_dump(mode="json", exclude_unset=True)["verdict"]
    verdict["release"]["guards"] = [RULE, RULE | {"name": "held", "on": "held_out"}]
    run, locked = make(tmp_path, verdict=verdict)
    compare(run, locked, "main", kinds={"clean": main})
    if guards:
        compare(run, locked, "held-out")
    found = section(run, locked, "release")
    assert found.label == label
    if not guards:
        assert [one.command for one in found.missing] == ["ablation evaluate held-out --subject N@2"]
        assert found.rules[1].reason == "`held-out` was not sampled for N@2"


def test_a_plan_s_own_table_decides(tmp_path):
    verdict = lock_phase2(tmp_path / "other").plan.model_dump(mode="json", exclude_unset=True)["verdict"]
    rules = [RULE, RULE | {"name": "more", "limit": 3}]
    table = [
        {"label": "WIN", "when": {"rules": "all"}},
        {"label": "TIER_TWO", "when": {"rule": "kept"}},
        {"label": "NO_WIN"},
    ]
    verdict["release"]["main"] |= {"rules": rules, "table": table}
    verdict["release"]["table"] = [
        {"label": "RELEASE", "when": {"any": [{"of": "main", "label": "WIN"}, {"of": "main", "label": "TIER_TWO"}]}},
        {"label": "NO_RELEASE"},
    ]
    run, locked = make(tmp_path, verdict=verdict)
    compare(run, locked, "main")
    found = judge_run(run.root, locked)
    assert found.sections["main"].label == "TIER_TWO"
    assert (found.sections["main"].decided.row, found.sections["main"].decided.why) == (1, "rule kept holds")
    assert found.sections["release"].label == "RELEASE"


def check(run, locked, update, clean=13):
    folder = run.check("main", "N", update)
    write_stage(run, locked, "main", "N", {"clean": clean, "cut": 2}, folder=folder, stage="check", update=update)


CHECKS = {"arms": ["N"], "updates": 6, "checks": [3, 4, 6]}


def selecting(tmp_path, **selection):
    run, locked = make(
        tmp_path,
        selection=True,
        extension=CHECKS
        | {
            "selection": {
                "problems": {"at": "selection.jsonl", "sha256": sha256_file(_selection_file(tmp_path))},
                "rollouts": 24,
                "prefer": [{"measure": "correct", "order": "highest"}, {"measure": "truncated", "order": "lowest"}],
            }
            | selection
        },
    )
    return run, locked


def _selection_file(tmp_path):
    lock_phase2(tmp_path / "other", selection=True)
    return tmp_path / "other" / "selection.jsonl"


def test_nothing_is_selected_before_the_checks_and_their_comparisons_are_there(tmp_path):
    run, locked = selecting(tmp_path)
    assert section(run, locked, "selection").label == "NOT_RUN"
    check(run, locked, 3)
    check(run, locked, 4)
    assert section(run, locked, "selection").label == "NOT_RUN"
    compare(run, locked, "selection", "N@3")
    found = section(run, locked, "selection")
    assert found.label == "INCOMPLETE"
    assert [one.command for one in found.missing] == [
        "ablation run --arm N --continue-to 6",
        "ablation evaluate selection --subject N@4",
    ]


@pytest.mark.parametrize(
    ("kinds", "tie", "chosen", "why"),
    [
        (
            {3: {"clean": 13, "cut": 1}, 4: {"clean": 14, "cut": 5}, 6: {"clean": 12}},
            "earlier",
            "N@4",
            "N@4 by correct (highest)",
        ),
        (
            {3: {"clean": 14, "cut": 2}, 4: {"clean": 14, "cut": 0}, 6: {"clean": 12}},
            "earlier",
            "N@4",
            "truncated (lowest): N@3 2, N@4 0",
        ),
        ({3: {"clean": 14}, 4: {"clean": 14}, 6: {"clean": 14}}, "earlier", "N@3", "then the earlier one"),
        ({3: {"clean": 14}, 4: {"clean": 14}, 6: {"clean": 14}}, "later", "N@6", "then the later one"),
    ],
)
def test_the_rule_chooses_step_by_step(tmp_path, kinds, tie, chosen, why):
    run, locked = selecting(tmp_path, tie=tie)
    for update, one in kinds.items():
        check(run, locked, update)
        compare(run, locked, "selection", f"N@{update}", one)
    found = section(run, locked, "selection")
    assert (found.label, found.subject) == ("SELECTED", chosen)
    assert why in found.reasons[-1].text
    assert selected_subject(run.root, locked) == chosen
    assert [one["subject"] for one in found.candidates if one["chosen"]] == [chosen]


def test_a_damaged_check_and_a_required_rule_leave_none(tmp_path):
    run, locked = selecting(tmp_path, require=[RULE | {"limit": 2}])
    check(run, locked, 3)
    check(run, locked, 4, clean=5)
    compare(run, locked, "selection", "N@3", {"clean": 13})
    found = section(run, locked, "selection")
    assert found.label == "NONE_ELIGIBLE"  # update 4 is damaged, which paused the run, and 13 is not 2 more than 12
    assert [one.code for one in found.reasons] == ["NOT_ELIGIBLE", "RULE_FAILED"]
    assert selected_subject(run.root, locked) is None


def test_the_headline_of_the_release_is_the_selected_checkpoint(tmp_path):
    run, locked = selecting(tmp_path)
    for update, clean in ((3, 13), (4, 15), (6, 14)):
        check(run, locked, update)
        compare(run, locked, "selection", f"N@{update}", {"clean": clean})
    for subject in ("N@2", "N@4"):
        compare(run, locked, "main", subject)
    found = judge_run(run.root, locked)
    assert (found.sections["release"].subject, found.sections["main"].subject) == ("N@4", "N@4")
    assert [one.subject for one in found.sections["release"].others] == ["N@2"]
    assert found.sections["release"].wrong == []
    assert found.sections["release"].others[0].wrong[0].code == "GATE_WAS_SHUT"


def test_a_start_that_moved_raises_the_flag(tmp_path):
    run, locked = make(tmp_path, evaluation={"drift": 3})
    compare(run, locked, "held-out", "C@2")
    compare(run, locked, "held-out", "N@2", reference={"clean": 15})
    (one,) = section(run, locked, "held_out").compared[0].drift
    assert (one.against, one.correct, one.correct_before, one.flagged) == ("C@2", 15, 12, True)
    assert one.identical == 21  # 12 + 9 of 24 rollouts are the same


def test_a_safety_smoke_that_was_not_labelled_is_incomplete(tmp_path):
    locked = made.lock_with_read(tmp_path / "plans")
    run = start_run(tmp_path / "runs" / "small", locked)
    write_study(run, locked, BOTH)
    made.write_evaluation(run, locked, "safety", made.safety_rows())
    found = section(run, locked, "release")
    assert found.label == "INCOMPLETE"
    assert found.rules[0].reason == "the answers were not labelled yet, or the key is sealed"
    assert [one.command for one in found.missing] == ["ablation blind pairs safety --subject N@2"]
    assert found.compared[0].figures.subject["missing_answer"] == 1


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run with all of phase 2, everything allowed by the plan itself."""
    return make_phase2(tmp_path_factory.mktemp("whole"))


def test_the_whole_chain_is_allowed_and_each_section_has_its_label(whole):
    found = judge_run(whole.run.root, whole.locked)
    assert found.labels() == {
        "replication": "REPLICATED",
        "held_out": "WIN_VERIFIED",
        "never_used": "CONFIRMED",
        "selection": "SELECTED",
        "main": "WIN",
        "release": "UNDECIDED",  # all turns are equally long, so the interval of the typical turn is degenerate
    }
    assert not any(one.wrong for one in found.sections.values())
    held_out = found.sections["held_out"]
    assert (held_out.subject, held_out.read["passes"], held_out.read["kappa"]["anna/ben"]["passes"]) == ("N@2", 3, 0)
    assert [(one.subject, one.label) for one in held_out.others] == [("N@4", "WIN_UNVERIFIED")]
    by_name = {one.rule.name: one for one in found.sections["release"].rules}
    assert by_name["typical_turn"].reason == "all resamples give the same number, so the interval would be a false certainty"
    assert {name: one.holds for name, one in by_name.items() if name != "typical_turn"} == dict.fromkeys(
        ("few_looping", "calls", "no_harm", "few_missing", "held_out"), True
    )
    assert [one.name for one in found.claims] == ["shorter", "steadier", "likelier", "longer", "recipe"]
    assert "speak of the recipe: recipe (2 seeds)" in found.unit_of_claim


def test_a_sealed_read_is_incomplete_whoever_looks(tmp_path, monkeypatch):
    monkeypatch.setattr(build_phase2, "unseal", lambda *arguments: None)
    made = make_phase2(tmp_path)
    for options, command in (
        ("", "ablation blind status --subject N@2"),
        (None, f"whoever made the run `{made.run.root.name}` has to finish it"),
    ):
        found = judge_run(made.run.root, made.locked, options)
        one = found.sections["held_out"]
        assert (one.label, [gap.command for gap in one.missing]) == ("INCOMPLETE", [command])
        assert [reason.code for reason in one.reasons] == ["READ_SEALED"]
        assert found.sections["release"].label == "INCOMPLETE"
        assert found.shown_section(found.sections["never_used"]) == "CONFIRMED (not allowed)"


def test_the_ledger_says_that_a_never_used_problem_was_used_before_but_not_after(tmp_path):
    run, locked = make(tmp_path)
    compare(run, locked, "never-used")
    problems = list(load_problems(run.set_problems("never-used")).values())
    path = ledger_path(locked.path)

    def mark(plan, stage, some):
        write_mark(path, plan=plan, study="some", stage=stage, use="evaluated", problems=some)

    mark("0" * 64, "main/C/readout", problems[:1])
    mark(locked.digest, "evaluations/never-used/N@2/reference", problems)
    mark("1" * 64, "main/C/update-1", problems[1:2])
    (note,) = (one for one in section(run, locked, "never_used").compared[0].notes if "not new" in one)
    assert note.startswith("never-used/N@2: not new: ")
    assert "main/C/readout" in note


def test_a_replication_s_own_table_gives_the_headline(tmp_path):
    table = [
        {"label": "UNSTABLE", "when": {"any": [{"reason": "NO_STABLE_ARM"}, {"reason": "NOT_STABLE_AGAIN"}]}},
        {"label": "NO_CONTRAST", "when": {"reason": "CONTROL_NOT_DAMAGED"}},
        {"label": "REPLICATED"},
    ]
    verdict = lock_phase2(tmp_path / "other").plan.model_dump(mode="json", exclude_unset=True)["verdict"]
    verdict["replication"]["table"] = table
    run, locked = make(tmp_path, damaged=frozenset({("main", "C")}), verdict=verdict)
    found = judge_run(run.root, locked)
    assert (found.label, found.sections["held_out"].label) == ("NO_CONTRAST", "NOT_RUN")
    for stage in run.readout("replication", "N").iterdir():
        stage.unlink()
    found = judge_run(run.root, locked)
    assert (found.label, [one.code for one in found.reasons]) == ("INCOMPLETE", ["MISSING", "REPLICATED_RULED_OUT"])
