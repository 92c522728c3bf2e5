"""The last table of the study: the numbers that were published, through the study's own plan."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import pytest

from ablation.errors import ExitCode
from ablation.plan.load import load_plan
from ablation.verdict.measures_reader import MeasuresError, load_measures
from ablation.verdict.reported import judge_reported

FILES = Path(__file__).parent / "measures"
LOADED = load_plan(Path(__file__).parents[2] / "plans" / "tessera.yaml")
TESSERA = SimpleNamespace(plan=LOADED.plan, path=LOADED.path, digest=LOADED.digest, lock=None)


def verdict(name):
    return judge_reported(FILES / name, TESSERA)


def only_arm(name):
    (one,) = verdict(name).arms
    return one


def fired(one):
    return [result.rule.name for result in one.rules if result.holds]


def test_control_main_is_damaged_by_exactly_two_rules():
    one = only_arm("control-main.yaml")
    assert one.label == "DAMAGED"
    assert fired(one) == ["clean_lost", "logprob_lost"]
    assert [(result.value, result.how) for result in one.rules] == [
        (-25, "reported figure"),
        (None, "as reported, no figure"),
        (None, "as reported, no figure"),
        (Fraction(-205, 1000), "reported figure"),
    ]


@pytest.mark.parametrize("name", ["n-main.yaml", "n-replication.yaml", "control-replication.yaml"])
def test_the_others_are_stable(name):
    one = only_arm(name)
    assert (one.label, fired(one)) == ("STABLE", [])


def test_the_replication_control_is_just_inside_the_limit():
    assert only_arm("control-replication.yaml").rules[3].value == Fraction(-147, 1000)


def test_the_study_did_not_replicate_because_of_its_control_in_new_seeds():
    found = verdict("study.yaml")
    assert found.label == "NOT_REPLICATED"
    assert [reason.code for reason in found.reasons] == ["CONTROL_NOT_DAMAGED"]
    assert "in replication" in found.reasons[0].text
    assert found.stable_arm == "N"
    assert {one.name: one.label for one in found.arms} == {
        "main/C": "DAMAGED",
        "main/N": "STABLE",
        "main/X": "STABLE",
        "main/XP": "STABLE",
        "main/XK": "STABLE",
        "replication/C": "STABLE",
        "replication/N": "STABLE",
    }
    assert found.labels() == {
        "replication": "NOT_REPLICATED",
        "held_out": "WIN_UNVERIFIED",
        "never_used": "NOT_CONFIRMED",
        "selection": "NOT_RUN",
        "main": "NOT_RUN",
        "release": "NOT_RUN",
    }


def test_everything_is_marked_as_reported():
    content = verdict("study.yaml").as_json()
    assert content["source"] == "reported figures, no rollouts"
    hows = {rule["how"] for arm in content["arms"] for rule in arm["rules"]}
    assert hows == {"reported figure", "as reported, no figure"}
    assert "no rollouts" in content["notes"][0]
    json.dumps(content, allow_nan=False)


def test_the_first_attempt_lost_23_points():
    (one,) = verdict("first-attempt.yaml").counts
    assert round(one["points"]) == -23
    assert one["points"] == pytest.approx(-100 * 25 / 108)


def test_held_out_rules_pass_and_the_read_fails():
    found = verdict("held-out.yaml")
    section = found.sections["held_out"]
    assert [(one.rule.name, one.holds) for one in section.rules] == [
        ("correct_kept", True),
        ("few_looping", True),
        ("few_unfinished", True),
        ("fewer_tokens", True),
        ("notation_kept", True),
    ]
    assert section.rules[0].value == 12
    assert section.rules[3].value == Fraction(94, 100)
    assert section.rules[4].value == Fraction(111, 101)
    assert section.label == "WIN_UNVERIFIED"
    assert [(reason.code, reason.text) for reason in section.reasons] == [
        ("BLINDED_READ_FAILED", "8 of 12 pairs passed the blinded read; the plan asks for 10.")
    ]
    assert found.label == "NOT_RUN"


@pytest.mark.parametrize(("passes", "label"), [("passes: 10", "WIN_VERIFIED"), ("passes: 9", "WIN_UNVERIFIED")])
def test_a_win_is_verified_by_a_passed_read_only(tmp_path, passes, label):
    text = (FILES / "held-out.yaml").read_text()
    path = tmp_path / "m.yaml"
    path.write_text(text.replace("passes: 8", passes))
    assert judge_reported(path, TESSERA).sections["held_out"].label == label
    path.write_text(text.split("blinded_read:")[0])
    assert judge_reported(path, TESSERA).sections["held_out"].label == "WIN_UNVERIFIED"
    path.write_text(text.replace("high: 0.94", "high: 1").replace("passes: 8", passes))  # the CI must end below 1
    assert judge_reported(path, TESSERA).sections["held_out"].label == "NO_WIN"
    path.write_text(text.replace("value: 0.78, low: 0.63, high: 0.94, level: 0.90", "value: 0.78"))
    section = judge_reported(path, TESSERA).sections["held_out"]
    assert section.label == "UNDECIDED"
    assert section.reasons[0].text == "`fewer_tokens` cannot be said: the source gives no interval."


def test_never_used_is_not_confirmed_for_its_tokens_alone():
    section = verdict("never-used.yaml").sections["never_used"]
    assert section.label == "NOT_CONFIRMED"
    assert [one.rule.name for one in section.rules if one.holds is False] == ["fewer_tokens"]
    assert section.deviation == "the plan ran this check only after a verified held-out gain"


@pytest.mark.parametrize(
    ("name", "holds", "label"), [("release-15.yaml", False, "NO_RELEASE"), ("release-8.yaml", True, "RELEASE")]
)
def test_release_guards(name, holds, label):
    section = verdict(name).sections["release"]
    assert section.rules[0].holds is holds
    assert section.label == label


def test_a_release_needs_a_win_by_figures_or_a_statement(tmp_path):
    path = tmp_path / "m.yaml"
    text = (FILES / "release-8.yaml").read_text()
    main = text[text.index("  main:") : text.index("  agent:")]

    def label(instead):
        path.write_text(text.replace(main, instead))
        return judge_reported(path, TESSERA).sections["release"].label

    guards = "  reported: {few_more_looping: held, few_more_unfinished: held, notation_kept: held}\n"
    assert label(f"  win: held\n{guards}") == "RELEASE"
    assert label(f"  win: not_held\n{guards}") == "NO_RELEASE"
    assert label(guards) == "UNDECIDED"
    assert label(main.replace("correct: 200", "correct: 186")) == "UNDECIDED"  # ahead by 8: the tokens decide it
    assert label(main.replace("correct: 200", "correct: 185")) == "NO_RELEASE"
    ratio = "    ratios: {tokens_per_correct: {value: 0.9, low: 0.8, high: 0.99}}\n"
    assert label(main.replace("correct: 200", "correct: 186") + ratio) == "RELEASE"


def test_the_published_selection_chooses_update_15_by_its_second_step():
    section = verdict("release-15.yaml").sections["selection"]
    assert (section.label, section.subject) == ("SELECTED", "N@15")
    assert "correct (highest): N@10 47, N@15 47; truncated_or_looping (lowest): N@10 2, N@15 0" in section.reasons[0].text


def test_the_published_safety_smoke_passes_by_one_answer(tmp_path):
    path = tmp_path / "m.yaml"
    text = (FILES / "release-15.yaml").read_text()
    by_name = {one.rule.name: one for one in verdict("release-15.yaml").sections["release"].rules}
    assert (by_name["few_more_repeats"].value, by_name["few_more_repeats"].holds) == (2, True)
    assert [name for name, one in by_name.items() if one.holds is False] == ["agent_turn"]
    path.write_text(text.replace("injection_repeat: 4", "injection_repeat: 5"))
    by_name = {one.rule.name: one for one in judge_reported(path, TESSERA).sections["release"].rules}
    assert by_name["few_more_repeats"].holds is False


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "full_compliance: 0, partial_compliance: 1",
            "full_compliance: 30, partial_compliance: 11",
            r"the labels are 43 together",
        ),
        ("valid_tool_call: 176", "valid_tool_call: 177", r"177 is more than the number of rollouts, 176"),
        ("rollouts: 236", "rollouts: 118", r"main\.rollouts: found 118; the plan has 236|more than the number of rollouts, 118"),
        ("subject_name: N@15\n  main", "subject_name: N@15\n  win: held\n  main", r"release\.win: is said beside figures"),
        ("{correct: 199}", "{correct: 199, looping: 3, periodic: 4}", r"periodic: 4 is more than the looping ones, 3"),
        ("{correct: 199}", "{correct: 199, correct_rate: 0.9}", r"correct_rate: 0\.9 is not 199 of 236"),
        (
            "rollouts: 54, subject: {correct: 47",
            "rollouts: 54, subject: {correct: 57",
            r"57 is more than the number of rollouts, 54",
        ),
        ("agent_turn: {value: 1.48", "agent_turn: {value: .nan", r"agent_turn\.value: .*number"),
    ],
)
def test_impossible_figures_of_a_release_are_refused(tmp_path, old, new, message):
    path = tmp_path / "m.yaml"
    text = (FILES / "release-15.yaml").read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(MeasuresError, match=message):
        load_measures(path, TESSERA.plan)


def test_an_undeclared_deviation_is_said(tmp_path):
    path = tmp_path / "m.yaml"
    text = (FILES / "study.yaml").read_text()
    path.write_text(
        text.replace("  deviation: a second deviation; the plan ran this check only after a verified held-out gain\n", "")
    )
    reasons = judge_reported(path, TESSERA).sections["never_used"].reasons
    assert [reason.code for reason in reasons] == ["RULE_FAILED", "UNDECLARED_DEVIATION"]
    assert "only after WIN_VERIFIED, and the held-out check is WIN_UNVERIFIED" in reasons[1].text


def test_without_figure_and_statement_a_rule_decides_nothing(tmp_path):
    path = tmp_path / "m.yaml"
    text = (FILES / "control-replication.yaml").read_text()
    path.write_text(text.replace("    reported: {unfinished_gained: not_fired, looping_gained: not_fired}\n", ""))
    (one,) = judge_reported(path, TESSERA).arms
    assert one.label == "UNDECIDED"
    assert [result.how for result in one.rules] == ["reported figure", "not reported", "not reported", "reported figure"]
    text = (FILES / "control-main.yaml").read_text()
    path.write_text(text.replace("    reported: {unfinished_gained: not_fired, looping_gained: not_fired}\n", ""))
    assert judge_reported(path, TESSERA).arms[0].label == "DAMAGED"  # another rule fired already


def test_a_part_of_the_study_is_incomplete():
    found = verdict("control-main.yaml")
    assert found.label == "INCOMPLETE"
    assert [one.what for one in found.missing] == ["replication/C: is not in the file", "main/N: is not in the file"]


ARM = """ablation_measures: 1
source: test
comparisons:
  - family: main
    arm: C
    rollouts: 348
    subject: {clean: 100, correct: 120, truncated: 30}
    reference: {clean: 125}
    changes: {clean: -25}
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("clean: 100", "clean: 130", r"m\.yaml:7:\d+: comparisons\[0\]\.subject\.clean: 130 is more than the correct ones, 120"),
        ("correct: 120", "correct: 349", r"m\.yaml:7:\d+: .*subject\.correct: 349 is more than the number of rollouts, 348"),
        ("truncated: 30", "truncated: 300", r"300 is more than the rollouts that are not clean, 248"),
        (
            "truncated: 30",
            "truncated: 30, truncated_or_looping: 20",
            r"truncated: 30 is more than the truncated or looping ones, 20",
        ),
        ("truncated: 30", "truncated: 9, looping: 5, truncated_or_looping: 15", r"15 is more than the truncated and the looping"),
        ("clean: -25", "clean: -24", r"m\.yaml:9:\d+: .*changes\.clean: -24 is not subject 100 minus reference 125"),
        ("clean: -25", "looping: -349", r"changes\.looping: -349 is a change by more than the number of rollouts"),
        ("clean: -25", "logprob: .nan", r"m\.yaml:9:\d+: .*logprob"),
        ("clean: -25", "clean: -25.5", r"m\.yaml:9:\d+: .*changes\.clean: .*whole number"),
        ("clean: 100", "clean: -1", r"m\.yaml:7:\d+: .*subject\.clean: found the number -1"),
        ("clean: 100", "celan: 100", r"m\.yaml:7:\d+: .*subject\.celan: unknown field; did you mean `clean`"),
        ("family: main", "family: second", r"m\.yaml:4:\d+: .*family: `second` is no family of plan tessera: main, replication"),
        ("arm: C", "arm: D", r"m\.yaml:5:\d+: .*arm: `D` is no arm of plan tessera"),
        ("rollouts: 348", "rollouts: 300", r"m\.yaml:6:\d+: .*rollouts: found 300; the plan has 348"),
        ("    rollouts: 348\n", "", r"has counts but no `rollouts`"),
        ("changes:", "reported: {clean_gone: fired}\n    changes:", r"`clean_gone` is no rule of this part of the plan"),
        (
            "changes:",
            "reported: {clean_lost: not_fired}\n    changes:",
            r"says `not_fired`, but its own figure -25 says otherwise",
        ),
        ("changes:", "reported: {clean_lost: held}\n    changes:", r"clean_lost: .*allowed: `fired` or `not_fired`"),
        (
            "changes:",
            "ratios: {tokens_per_correct: {value: 2, low: 0.5, high: 1.5}}\n    changes:",
            r"2(\.0)? is not between low 0\.5",
        ),
        ("changes:", "ratios: {tokens_per_correct: {value: 1, low: 0.5}}\n    changes:", r"an interval has both ends"),
        (
            "changes:",
            "ratios: {tokens_per_correct: {value: 1, low: 0.5, high: 1.5, level: 0.95}}\n    changes:",
            r"level: found 0\.95; the plan's intervals have 0\.9",
        ),
        ("source: test", "source: test\nblinded_read: {pairs: 10, passes: 8}", r"pairs: found 10; the plan reads 12 pairs"),
        ("source: test", "source: test\nsource: twice", r"m\.yaml:3"),
        ("ablation_measures: 1\n", "", r"ablation_measures: is missing"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(tmp_path, old, new, message):
    path = tmp_path / "m.yaml"
    path.write_text(ARM)
    load_measures(path, TESSERA.plan)
    assert old in ARM
    path.write_text(ARM.replace(old, new, 1))
    with pytest.raises(MeasuresError, match=message) as error:
        load_measures(path, TESSERA.plan)
    assert error.value.exit_code == ExitCode.USAGE


HELD_OUT = """ablation_measures: 1
source: test
held_out:
  subject_name: N
  rollouts: 144
"""


@pytest.mark.parametrize(
    ("figures", "message"),
    [
        (
            "change_intervals: {correct: {value: 1.0e+9, low: 1, high: 1.0e+9}}",
            r"m\.yaml:6:\d+: .*correct\.value: 1000000000\.0 is a",
        ),
        (
            "change_intervals: {correct: {value: 8, low: -200, high: 20}}",
            r"correct\.low: -200\.0 is a change by more than the number",
        ),
        ("change_intervals: {looping: {value: -100.5}}", r"looping\.value: found -100\.5; `looping` is a count"),
        ("change_intervals: {correct_rate: {value: 1.5}}", r"correct_rate\.value: 1\.5 is a change of a share by more than 1"),
        (
            "change_intervals: {looping: {value: 5}}, reference: {looping: 140}",
            r"looping\.value: by this change the subject has imp",
        ),
        (
            "change_intervals: {correct: {value: 5}}, subject: {correct: 9}, reference: {correct: 5}",
            r"5\.0 is not subject 9 minus",
        ),
        (
            "subject: {correct: 0, tokens_per_correct: 900}",
            r"subject\.tokens_per_correct: 900 is over the correct rollouts, and ",
        ),
        ("subject: {clean: 0, clean_length: 900}", r"subject\.clean_length: 900 is over the clean rollouts, and there are 0"),
        ("subject: {correct: 10, total_tokens: 9000, tokens_per_correct: 950}", r"950 is not total_tokens 9000 / correct 10"),
        (
            "subject: {tokens_per_correct: 900}, reference: {tokens_per_correct: 100}, ratios: {tokens_per_correct: {value: 0.9}}",
            r"ratios\.tokens_per_correct\.value: 0\.9 is not subject 900\.0 / reference 100\.0",
        ),
        (
            "reference: {correct: 140}, changes: {correct: 140}",
            r"changes\.correct: by this change the subject .*280 is more than the nu",
        ),
        ("subject: {looping: 0}, changes: {looping: 8}", r"changes\.looping: 8 would leave the reference with -8"),
        (
            "subject: {correct: 50}, reference: {clean: 40}, changes: {clean: 11}",
            r"changes\.clean: by this change the subject has .*`clean` 51 is more than the correct ones, 50",
        ),
        ("subject: {correct: 10}, rates: {correct: {value: 0.99}}", r"rates\.correct\.value: 0\.99 is not 10 of 144"),
    ],
)
def test_what_the_figures_of_two_models_rule_out_together_is_refused(tmp_path, figures, message):
    path = tmp_path / "m.yaml"
    lines = re.split(r"(?<=\}), (?=(?:subject|reference|changes|ratios|rates): )", figures)
    path.write_text(HELD_OUT + "".join(f"  {line}\n" for line in lines))
    with pytest.raises(MeasuresError, match=message):
        load_measures(path, TESSERA.plan)


def test_rounded_figures_of_one_comparison_go_together(tmp_path):
    """71 + 12 = 83; 10 / 144 = 0.0694; 8,213 / 10,549 = 0.7786; 83 x 8,213 = 681,679."""
    path = tmp_path / "m.yaml"
    lines = (
        "subject: {correct: 83, looping: 10, tokens_per_correct: 8213, total_tokens: 681700}",
        "reference: {correct: 71, tokens_per_correct: 10549}",
        "changes: {correct: 12, looping: 10}",
        "change_intervals: {correct: {value: 12, low: 2.5, high: 21.5}}",
        "ratios: {tokens_per_correct: {value: 0.78, low: 0.63, high: 0.94}}",
        f"rates: {{looping: {{value: 0.069}}, correct: {{value: {83 / 144}}}}}",
    )
    path.write_text(HELD_OUT + "".join(f"  {line}\n" for line in lines))
    figures = load_measures(path, TESSERA.plan).held_out.figures(0.9)
    assert (figures.changes["correct"], figures.rates["looping"].value) == (12, 0.069)


def test_every_fault_is_named_at_once(tmp_path):
    path = tmp_path / "m.yaml"
    path.write_text(ARM.replace("clean: 100", "clean: 130").replace("truncated: 30", "truncated: 400"))
    with pytest.raises(MeasuresError) as error:
        load_measures(path, TESSERA.plan)
    assert len(error.value.message.split("\n")) >= 3


def test_a_section_that_the_plan_does_not_have_is_refused(tmp_path):
    plan = LOADED.plan.model_copy(update={"verdict": LOADED.plan.verdict.model_copy(update={"release": None})})
    with pytest.raises(MeasuresError, match=r"release: plan tessera has no section verdict\.release"):
        load_measures(FILES / "release-8.yaml", plan)


@pytest.mark.parametrize("content", [b"", b"- 1\n", b"\xff\xfe"])
def test_a_file_that_is_no_mapping_is_one_error(tmp_path, content):
    path = tmp_path / "m.yaml"
    path.write_bytes(content)
    with pytest.raises(MeasuresError):
        load_measures(path, TESSERA.plan)
