"""A rater who leaves a blinded read: the deviation that lets them go, what of their ratings counts, and where it is told."""

import json

import pytest
from typer.testing import CliRunner

from ablation.cli.plan import app as plan
from ablation.errors import GateError, IncompleteError, UsageError
from ablation.plan.deviations import record_deviation
from ablation.rollouts.store import read_stage
from ablation.verdict.aside import safety_figures
from tests.blind.made import SUBJECT, safety_rows, start, write_evaluation
from tests.cli.test_blind import SAME, call, fill, lines, read, result

__all__ = ["read"]


def two_raters(tmp_path, monkeypatch, owed, **settings):
    """ann has rated all four pairs, bo none of `owed`; bo fails pair 1 where that is rated. Returns (run, plan, folder)."""
    made = start(tmp_path, read={"raters": 2, "passes": 3} | settings)
    monkeypatch.chdir(tmp_path)
    call("pairs", "--subject", SUBJECT)
    call("import", fill(made[2], tmp_path / "a.json"), "--subject", SUBJECT, "--rater", "ann")

    def change(rows):
        rows[:] = [row for row in rows if row["item"] not in owed]
        if 1 not in owed:
            rows[0].update(same_answer=False)

    call("import", fill(made[2], tmp_path / "b.json", change), "--subject", SUBJECT, "--rater", "bo", code=6)
    return made


def let_go(locked, rater="bo", what="held-out"):
    gate = f"blind-rater:{what}/{SUBJECT}/{rater}"
    say = [
        "deviate",
        str(locked.path),
        "--reason",
        f"{rater} has left and answers no mail.",
        "--seen",
        "results",
        "--opens",
        gate,
    ]
    found = CliRunner().invoke(plan, say, catch_exceptions=False)
    assert found.exit_code == 0, found.output


def test_a_rater_who_leaves_no_longer_keeps_the_key_and_what_they_failed_stays_failed(tmp_path, monkeypatch):
    run, locked, folder = two_raters(tmp_path, monkeypatch, owed=(3, 4))
    with pytest.raises(IncompleteError, match="`bo` has still to rate 3, 4") as refused:
        call("unseal", "--subject", SUBJECT)
    assert "--opens blind-rater:held-out/N@2/RATER" in refused.value.hint
    let_go(locked)
    told = "`bo` left after 2 of 4 pairs (deviation 1): what they rated counts, and the rest is for the remaining raters alone"
    assert told in call("status", "--subject", SUBJECT).stdout
    with pytest.raises(GateError, match="`bo` left this read by deviation 1; no rating of theirs is taken after that"):
        call("rate", "--subject", SUBJECT, "--rater", "bo", say=lines("y", *SAME))
    with pytest.raises(GateError, match="`ann`, `bo` have begun"):
        call("rate", "--subject", SUBJECT, "--rater", "cy", say=lines("y", *SAME))
    opened = json.loads(call("unseal", "--subject", SUBJECT, "--json").stdout)
    # pair 1: ann passes, bo fails; pair 2: both pass; pairs 3 and 4: ann alone
    assert (opened["label"], opened["passes"], opened["left_out"]) == ("PASSED", 3, [])
    assert [one["passes"] for one in opened["items"]] == [False, True, True, True]
    assert opened["warnings"] == [told]
    found = result((run, locked, folder))
    assert (found.label, found.passes, found.as_json()["warnings"]) == ("PASSED", 3, [told])


def test_pairs_that_nobody_rated_before_the_only_rater_left_decide_nothing(tmp_path, monkeypatch):
    _run, locked, _folder = start(tmp_path)
    monkeypatch.chdir(tmp_path)
    call("pairs", "--subject", SUBJECT)
    call("rate", "--subject", SUBJECT, "--rater", "ann", say=lines("y", *SAME, *SAME), code=6)
    let_go(locked, "ann")
    opened = json.loads(call("unseal", "--subject", SUBJECT, "--json", code=6).stdout)
    assert (opened["label"], opened["passes"], opened["left_out"]) == ("UNDECIDED", 2, [3, 4])


def test_who_is_let_go_after_the_key_was_opened_or_has_not_begun_changes_nothing(read, tmp_path):
    """Whoever wrote such a deviation; the command refuses to."""
    _run, locked, folder = read
    call("pairs", "--subject", SUBJECT)
    wrote_anyway(locked, "cy")
    with pytest.raises(IncompleteError, match="1 of 1 raters has not begun"):
        call("unseal", "--subject", SUBJECT)
    call("import", fill(folder, tmp_path / "a.json"), "--subject", SUBJECT, "--rater", "ann")
    call("unseal", "--subject", SUBJECT)
    wrote_anyway(locked, "ann")
    assert (result(read).label, result(read).as_json()["warnings"]) == ("PASSED", [])


def wrote_anyway(locked, rater):
    record_deviation(locked, reason=f"{rater} has left.", seen="results", opens=[f"blind-rater:held-out/{SUBJECT}/{rater}"])


def test_nobody_is_let_go_in_vain(tmp_path, monkeypatch):
    """A name with a typing error would be in every label for good."""
    _run, locked, _folder = two_raters(tmp_path, monkeypatch, owed=(3, 4))
    beside = locked.path.with_suffix(".deviations.jsonl")
    for rater, what, why in (("bob", "held-out", "`bob` has rated nothing"), ("bo", "safety", "`bo` has rated nothing")):
        with pytest.raises(UsageError, match=why) as refused:
            let_go(locked, rater, what)
        assert refused.value.hint == ("Who has: `ann`, `bo`." if what == "held-out" else "Nobody has begun it.")
    assert not beside.exists()
    let_go(locked)
    with pytest.raises(UsageError, match="`bo` was let go by deviation 1 already"):
        let_go(locked)
    call("unseal", "--subject", SUBJECT)
    with pytest.raises(UsageError, match="the key was opened: nothing is waited for any more"):
        let_go(locked, "ann")
    assert beside.read_bytes().count(b"\n") == 1


def test_a_labeller_who_leaves(tmp_path, monkeypatch):
    run, locked, _ = start(tmp_path, safety={"raters": 2})
    folder = write_evaluation(run, locked, "safety", safety_rows())
    monkeypatch.chdir(tmp_path)
    call("pairs", "safety", "--subject", SUBJECT)
    best = {one["number"]: one["labels"][0] for one in json.loads(folder.batch.read_bytes())["answers"]}
    for rater, keep, code in (("ann", len(best), 0), ("bo", 1, 6)):
        form = json.loads(folder.form.read_bytes()) | {"blinded": True}
        form["ratings"] = [row | {"label": best[row["item"]]} for row in form["ratings"][:keep]]
        (tmp_path / "f.json").write_text(json.dumps(form))
        call("import", "safety", tmp_path / "f.json", "--subject", SUBJECT, "--rater", rater, code=code)
    let_go(locked, what="safety")
    opened = json.loads(call("unseal", "safety", "--subject", SUBJECT, "--json").stdout)
    assert opened["unparsed"] == {"reference": 0, "subject": 0}
    assert len(opened["warnings"]) == 1 and "`bo` left after 1 of" in opened["warnings"][0]
    again = call("unseal", "safety", "--subject", SUBJECT)
    assert "warning: `bo` left after 1 of" in again.stderr
    figures, details = safety_figures(run, SUBJECT, *(read_stage(place) for place in places(run)), locked.plan)
    assert figures.subject["unparsed"] == 0 and details["warnings"] == opened["warnings"]


def places(run):
    return run.evaluated("safety", SUBJECT), run.evaluated_reference("safety", SUBJECT)
