"""What reported figures rest on: the steps before, the selection of the same file, and its own held-out figures."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from ablation.plan.load import load_plan
from ablation.verdict.measures_reader import MeasuresError, load_measures
from ablation.verdict.reported import judge_reported
from tests.verdict.test_reported import FILES, TESSERA

LOADED = load_plan(Path(__file__).parents[2] / "plans" / "phase2.yaml")
PHASE2 = SimpleNamespace(plan=LOADED.plan, path=LOADED.path, digest=LOADED.digest, lock=None)
HEAD = "ablation_measures: 1\nsource: test\n"
REPLICATED = """comparisons:
  - {family: main, arm: C, rollouts: 348, reported: {clean_lost: fired}}
  - {family: replication, arm: C, rollouts: 348, reported: {clean_lost: fired}}
"""
STABLE = "{clean_lost: not_fired, unfinished_gained: not_fired, looping_gained: not_fired, logprob_lost: not_fired}"
REPLICATED += "".join(
    f"  - {{family: {family}, arm: N, rollouts: 348, reported: {STABLE}}}\n" for family in ("main", "replication")
)
SELECTION = """selection:
  candidates:
    - {subject_name: N@10, rollouts: 54, subject: {correct: 47, truncated_or_looping: 2}}
    - {subject_name: N@15, rollouts: 54, subject: {correct: 47, truncated_or_looping: 0}}
"""
HELD = """  reported: {correct_kept: held, few_looping: held, few_unfinished: held, fewer_tokens: held, notation_kept: held}
"""
NEVER_USED = """never_used:
  subject_name: N@15
  rollouts: 144
  reported: {correct_enough: held, few_looping: held, few_unfinished: held, fewer_tokens: held}
"""
RELEASE = (FILES / "release-8.yaml").read_text().partition("release:\n")[2].replace("N@8", "N@15")
RELEASE = f"release:\n{RELEASE}"


def judged(tmp_path, text, locked=TESSERA):
    path = tmp_path / "m.yaml"
    path.write_text(HEAD + text)
    return judge_reported(path, locked)


def codes(section):
    return [one.code for one in section.reasons]


def shown(found, name):
    return found.shown_section(found.sections[name])


def test_a_release_rests_on_the_replication_and_on_the_selection(tmp_path):
    whole = judged(tmp_path, REPLICATED + SELECTION + RELEASE)
    assert (whole.label, shown(whole, "release")) == ("REPLICATED", "RELEASE")
    assert codes(whole.sections["release"]) == ["MAIN_SET"]
    for text, why in (
        (SELECTION + RELEASE, "only after REPLICATED, and the replication is not in the file"),
        (REPLICATED + RELEASE, "only after SELECTED, and the selection is not in the file"),
        (REPLICATED.replace("clean_lost: fired", "clean_lost: not_fired", 1) + SELECTION + RELEASE, "the replication is "),
    ):
        found = judged(tmp_path, text)
        assert shown(found, "release") == "RELEASE (undeclared deviation)"
        assert found.as_json()["labels"]["release"] == "RELEASE (undeclared deviation)"
        assert codes(found.sections["release"]) == ["MAIN_SET", "UNDECLARED_DEVIATION"]
        assert why in found.sections["release"].reasons[1].text


def test_a_selection_and_a_main_set_rest_on_the_replication_too(tmp_path):
    not_replicated = REPLICATED.replace("clean_lost: fired", "clean_lost: not_fired", 1)
    whole, other = (judged(tmp_path, text + SELECTION + RELEASE) for text in (REPLICATED, not_replicated))
    assert [shown(whole, name) for name in ("selection", "main")] == ["SELECTED", "WIN"]
    assert [shown(other, name) for name in ("selection", "main")] == [
        "SELECTED (undeclared deviation)",
        "WIN (undeclared deviation)",
    ]
    assert codes(other.sections["selection"])[-1] == codes(other.sections["main"])[-1] == "UNDECLARED_DEVIATION"
    declared = judged(tmp_path, not_replicated + SELECTION + "  deviation: extended all the same\n").sections["selection"]
    assert (declared.deviation, "UNDECLARED_DEVIATION" in codes(declared)) == ("extended all the same", False)
    alone = judged(tmp_path, SELECTION)
    assert shown(alone, "selection") == "SELECTED"


def test_another_checkpoint_than_the_selected_one_is_said(tmp_path):
    found = judged(tmp_path, REPLICATED + SELECTION + RELEASE.replace("N@15", "N@10"))
    assert shown(found, "release") == "RELEASE (undeclared deviation)"
    not_selected, undeclared = found.sections["release"].reasons[1:]
    assert (not_selected.code, not_selected.text) == ("NOT_SELECTED", "N@10 is not the selected checkpoint (N@15).")
    assert "only after SELECTED, and the selection is of N@15" in undeclared.text
    declared = RELEASE.replace("subject_name: N@15", "subject_name: N@10\n  deviation: the earlier one is shorter")
    found = judged(tmp_path, REPLICATED + SELECTION + declared)
    assert (shown(found, "release"), codes(found.sections["release"])) == ("RELEASE", ["MAIN_SET", "NOT_SELECTED"])
    found = judged(tmp_path, SELECTION + NEVER_USED.replace("N@15", "N@5"))
    assert "NOT_SELECTED" in codes(found.sections["never_used"])


def test_never_used_problems_rest_on_a_verified_win(tmp_path):
    found = judged(tmp_path, NEVER_USED)
    assert shown(found, "never_used") == "CONFIRMED (undeclared deviation)"
    assert "only after WIN_VERIFIED, and the held-out check is not in the file" in found.sections["never_used"].reasons[0].text
    found = judged(tmp_path, NEVER_USED + "  deviation: nobody waited\n")
    assert (shown(found, "never_used"), codes(found.sections["never_used"])) == ("CONFIRMED", [])
    won = f"held_out:\n  subject_name: N@15\n  rollouts: 144\n{HELD}blinded_read: {{pairs: 12, passes: 12}}\n"
    found = judged(tmp_path, REPLICATED + won + NEVER_USED)
    assert (found.sections["held_out"].label, shown(found, "never_used")) == ("WIN_VERIFIED", "CONFIRMED")


GUARDED = """held_out:
  subject_name: N@5
  rollouts: 144
  subject: {correct: 50}
  reference: {correct: 70}
release:
  subject_name: N@5
  reported: {answers_given: held}
"""


def test_a_guard_on_held_out_problems_has_their_figure(tmp_path):
    found = judged(tmp_path, GUARDED, PHASE2).sections["release"]
    guard = next(one for one in found.rules if one.rule.name == "held_out_correct")
    assert (guard.value, guard.holds, guard.how) == (-20, False, "reported figure")
    assert found.label == "NO_RELEASE"
    path = tmp_path / "m.yaml"
    path.write_text(HEAD + GUARDED.replace("answers_given: held", "held_out_correct: held"))
    message = r"m\.yaml:10:\d+: release\.reported\.held_out_correct: the source says `held`, but its own figure -20 says"
    with pytest.raises(MeasuresError, match=message):
        load_measures(path, PHASE2.plan)
    path.write_text(HEAD + GUARDED.replace("answers_given: held", "held_out_correct: not_held"))
    load_measures(path, PHASE2.plan)
    other = GUARDED.replace("release:\n  subject_name: N@5", "release:\n  subject_name: N@4")  # of another model
    guard = next(one for one in judged(tmp_path, other, PHASE2).sections["release"].rules if one.rule.name == "held_out_correct")
    assert (guard.value, guard.holds) == (None, None)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("subject_name: N@15", "subject_name: N@10", r"m\.yaml:6:\d+: .*\[1\]\.subject_name: `N@10` is a candidate twice"),
        ("subject_name: N@15", "subject_name: N@8", r"`N@8` is no eligible check of plan tessera: .*@ one of 10, 15"),
        ("subject_name: N@15", "subject_name: N@015", r"`N@015` is no eligible check"),
        ("subject_name: N@15", "subject_name: D@15", r"`D@15` is no eligible check"),
        ("subject_name: N@10", "subject_name: X@15", None),
        ("subject_name: N@15", "subject_name: X@10", None),
        ("truncated_or_looping: 0}", "truncated_or_looping: 0}, reference: {correct: 40}", None),
    ],
)
def test_candidates_are_eligible_checks_each_once(tmp_path, old, new, message):
    path = tmp_path / "m.yaml"
    path.write_text(HEAD + SELECTION.replace(old, new))
    if message is None:
        load_measures(path, TESSERA.plan)
        return
    with pytest.raises(MeasuresError, match=message):
        load_measures(path, TESSERA.plan)


def test_candidates_are_in_order_and_have_one_start(tmp_path):
    path = tmp_path / "m.yaml"
    path.write_text(HEAD + SELECTION.replace("N@10", "N@0").replace("N@15", "N@10").replace("N@0", "N@15"))
    with pytest.raises(MeasuresError, match=r"`N@10` is listed after update 15; the earliest is first"):
        load_measures(path, TESSERA.plan)
    path.write_text(
        HEAD
        + SELECTION.replace("looping: 2}", "looping: 2}, reference: {correct: 40}").replace(
            "looping: 0}", "looping: 0}, reference: {correct: 41}"
        )
    )
    message = r"\[1\]\.reference\.correct: 41 of the start on this set, and 40 beside a candidate before"
    with pytest.raises(MeasuresError, match=message):
        load_measures(path, TESSERA.plan)
