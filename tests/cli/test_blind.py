import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from threading import Event, Thread

import pytest
import typer
from typer.testing import CliRunner

from ablation.blind import read_result
from ablation.chain import read_chain
from ablation.cli.blind import app as blind
from ablation.errors import GateError, IncompleteError, IntegrityError, UsageError
from ablation.files import sha256_file
from ablation.rollouts.journal_chain import read_journal
from ablation.study.runlock import exclusive
from tests.blind.made import SUBJECT, safety_rows, start, write_evaluation

app = typer.Typer()
app.add_typer(blind, name="blind")
SAME = ["y", "y", "n", "n"]


def call(*arguments, code=0, say=None):
    result = CliRunner().invoke(app, ["blind", *map(str, arguments)], input=say)
    if isinstance(result.exception, Exception):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def lines(*answers):
    return "".join(f"{answer}\n" for answer in answers)


@pytest.fixture
def read(tmp_path, monkeypatch):
    run, locked, folder = start(tmp_path)
    monkeypatch.chdir(tmp_path)
    return run, locked, folder


def result(read):
    run, locked, _ = read
    return read_result(run, "held-out", SUBJECT, locked.plan)


def fill(folder, path, change=None, blinded=True, **values):
    """The form as a rater fills it in; `change(ratings)` afterwards."""
    form = json.loads(folder.form.read_bytes())
    form["blinded"] = blinded
    for row in form["ratings"]:
        row.update({"same_answer": True, "same_method": True, "x_missing_checks": False, "y_missing_checks": False} | values)
    if change:
        change(form["ratings"])
    path.write_text(json.dumps(form, indent=1))
    return path


def test_a_person_rates_stops_goes_on_and_the_key_is_opened(read):
    run, locked, folder = read
    assert result(read) is None
    made = json.loads(call("pairs", "held-out", "--subject", SUBJECT, "--json").stdout)
    key = locked.path.parent / "small.keys" / "held-out-N@2.json"
    assert (made["kind"], made["items"], made["key"]) == ("pairs", 4, f"plans/small.keys/{key.name}")
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert made["key_sha256"] == sha256_file(key) and made["batch_sha256"] == sha256_file(folder.batch)
    assert {one["name"]: one["state"] for one in made["leaks"]} == {
        "fields": "ok",
        "ids": "ok",
        "names": "ok",
        "order": "ok",
        "lengths": "note",
        "known": "ok",
        "times": "ok",
    }
    found = result(read)
    assert (found.label, found.reasons[0].code, found.passes) == ("UNDECIDED", "SEALED", None)
    assert found.reasons[0].text == "1 of 1 raters has not begun"

    first = call("rate", "--subject", SUBJECT, "--rater", "ann", say=lines("y", *SAME, "y", "maybe", "n", ""), code=6)
    assert "=== Pair 1 (1 of 4 that are open) ===" in first.stderr and "`maybe` is not y or n" in first.stderr
    assert "`ann` has 3 still open" in first.stdout
    assert "4 pairs, key sealed\nann (person): 1 of 4 rated" in call("status", "--subject", SUBJECT).stdout
    with pytest.raises(IncompleteError, match="the key stays sealed: `ann` has still to rate 2, 3, 4"):
        call("unseal", "--subject", SUBJECT)
    assert not folder.key.exists()

    second = call("rate", "--subject", SUBJECT, "--rater", "ann", say=lines("y", *SAME, *SAME, "y", "n", "n", "y"))
    assert "=== Pair 1 " not in second.stderr and "=== Pair 2 (1 of 3 that are open) ===" in second.stderr
    assert "Next: ablation blind unseal held-out --subject N@2" in second.stdout
    assert [row["item"] for row in read_chain(folder.rater("ann"), counter="number", first=1, what="").records] == [1, 2, 3, 4]

    opened = json.loads(call("unseal", "--subject", SUBJECT, "--json").stdout)
    assert (opened["label"], opened["passes"], opened["needed"], opened["pairs"]) == ("PASSED", 3, 3, 4)
    assert folder.key.read_bytes() == key.read_bytes()
    found = result(read)
    assert (found.label, found.passes, found.unsealed) == ("PASSED", 3, True)
    assert found.reasons[0].text == "3 of 4 pairs pass; 3 are needed"
    lacking = json.loads(folder.key.read_bytes())["items"][3]["Y"]
    assert found.content["raters"]["ann"]["missing_checks"] == {"subject": 0, "reference": 0} | {lacking: 1}

    with pytest.raises(GateError, match="the key was opened; no rating is taken after that"):
        call("rate", "--subject", SUBJECT, "--rater", "ann", say=lines(*SAME))
    with pytest.raises(GateError, match="the key was opened"):
        call("import", fill(folder, run.root.parent / "late.json"), "--subject", SUBJECT, "--rater", "ann")
    assert json.loads(call("unseal", "--subject", SUBJECT, "--json").stdout)["passes"] == 3
    assert [event["event"] for event in read_journal(run.journal)][-6:] == [
        "blind_sealed",
        *["blind_rated"] * 4,
        "blind_unsealed",
    ]


def test_a_file_is_filled_in_elsewhere(read, tmp_path):
    run, _, folder = read
    call("pairs", "--subject", SUBJECT, "--key", tmp_path / "far" / "key.json")
    path = fill(folder, tmp_path / "ratings.json", lambda rows: rows[0].update(same_answer=False, note="Y ends in 5."))
    done = json.loads(call("import", path, "--subject", SUBJECT, "--rater", "bo", "--json").stdout)
    assert done == {"rater": "bo", "replies": 4, "open": [], "missing": [], "exit_code": 0}
    assert [len(event["lines"]) for event in read_journal(run.journal) if event["event"] == "blind_rated"] == [4]
    with pytest.raises(UsageError, match="the key cannot be read"):
        call("unseal", "--subject", SUBJECT)
    shown = call("unseal", "--subject", SUBJECT, "--key", tmp_path / "far" / "key.json").stdout
    assert "Blinded read: PASSED: 3 of 4 pairs pass; 3 are needed" in shown
    assert "bo: 3 of 4 pass; same answer 3, method 4, checks missing: subject 0, start 0" in shown
    assert "correlation of being the subject with length: -" in shown
    assert shown.endswith("\nNext: ablation verdict\n")


def test_a_rater_is_told_what_a_check_is_and_confirms_that_nobody_told_them(read):
    folder = read[2]
    call("pairs", "--subject", SUBJECT)
    asked = call("rate", "--subject", SUBJECT, "--rater", "ann", say=lines(""), code=6).stderr
    assert "A check is a step that the problem needs" in asked and "=== Pair" not in asked
    assert "Nobody told me whose answers these are, and I did not look it up. Is that so? [y or n]" in asked
    with pytest.raises(GateError, match="cannot rate them blind; nothing was taken"):
        call("rate", "--subject", SUBJECT, "--rater", "ann", say=lines("n"))
    assert not folder.ratings.exists()


def test_import_takes_the_set_as_the_other_commands_do(read, tmp_path):
    call("pairs", "--subject", SUBJECT)
    path = fill(read[2], tmp_path / "r.json")
    with pytest.raises(UsageError, match="found the set `held-out` and --set safety"):
        call("import", "held-out", path, "--set", "safety", "--subject", SUBJECT, "--rater", "bo")
    with pytest.raises(UsageError, match="found 3 arguments"):
        call("import", "held-out", path, path, "--subject", SUBJECT, "--rater", "bo")
    done = json.loads(call("import", "held-out", path, "--subject", SUBJECT, "--rater", "bo", "--json").stdout)
    assert (done["replies"], done["open"]) == (4, [])


def test_a_failed_read(read, tmp_path):
    _, _, folder = read
    call("pairs", "--subject", SUBJECT)
    call("import", fill(folder, tmp_path / "r.json", same_method=False), "--subject", SUBJECT, "--rater", "bo")
    opened = json.loads(call("unseal", "--subject", SUBJECT, "--json").stdout)
    assert (opened["label"], opened["reasons"][0]["code"]) == ("FAILED", "TOO_FEW_PASS")


def test_two_raters_must_both_let_a_pair_pass_and_kappa_is_told(tmp_path, monkeypatch):
    folder = start(tmp_path, read={"raters": 2, "passes": 2})[2]
    monkeypatch.chdir(tmp_path)
    call("pairs", "--subject", SUBJECT)
    call(
        "import",
        fill(folder, tmp_path / "a.json", lambda rows: rows[0].update(same_answer=False)),
        "--subject",
        SUBJECT,
        "--rater",
        "ann",
    )
    with pytest.raises(IncompleteError, match="1 of 2 raters has not begun"):
        call("unseal", "--subject", SUBJECT)

    def change(rows):
        rows[0].update(same_answer=False)
        rows[1].update(x_missing_checks=True)

    call("import", fill(folder, tmp_path / "b.json", change), "--subject", SUBJECT, "--rater", "bo")
    with pytest.raises(GateError, match="the plan asks for 2 raters, and `ann`, `bo` have begun"):
        call("rate", "--subject", SUBJECT, "--rater", "cy", say=lines(*SAME))
    opened = json.loads(call("unseal", "--subject", SUBJECT, "--json").stdout)
    assert (opened["label"], opened["passes"]) == ("PASSED", 2)
    # passes: ann 0111, bo 0011: p_o = 3/4, p_e = 3/4 * 1/2 + 1/4 * 1/2 = 1/2, kappa = 1/2
    assert opened["kappa"]["ann/bo"] == {
        "passes": 0.5,
        "same_answer": 1.0,
        "same_method": None,
        "x_missing_checks": 0.0,
        "y_missing_checks": None,
    }


def test_too_few_pairs_are_exit_6_and_a_reason_in_the_result(tmp_path, monkeypatch):
    unsolved = {("subject", f"sum-{k}", "low", index) for k in range(5) for index in range(2)}
    read = start(tmp_path, unsolved=unsolved)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(IncompleteError, match="both models solved too few problems"):
        call("pairs", "--subject", SUBJECT)
    assert not read[2].root.exists() and not (tmp_path / "plans" / "small.keys").exists()
    found = result(read)
    assert (found.label, found.reasons[0].code) == ("UNDECIDED", "TOO_FEW_PAIRS")


def test_pairs_are_made_once(read):
    call("pairs", "--subject", SUBJECT)
    with pytest.raises(UsageError, match=r"pairs\.json: was made before"):
        call("pairs", "--subject", SUBJECT)


def test_a_key_of_somebody_else_is_not_replaced_or_taken(read, tmp_path):
    (tmp_path / "k.json").write_text("{}")
    with pytest.raises(UsageError, match="there is a key already"):
        call("pairs", "--subject", SUBJECT, "--key", tmp_path / "k.json")
    assert (tmp_path / "k.json").read_text() == "{}"
    with pytest.raises(UsageError, match="lies in the run folder"):
        call("pairs", "--run", "runs/small", "--subject", SUBJECT)


@pytest.mark.parametrize("gone", [["batch"], ["batch", "form", "page"], ["batch", "form", "page", "key"]])
def test_a_batch_that_was_interrupted_is_made_good_by_the_same_command(read, gone):
    run, locked, folder = read
    call("pairs", "--subject", SUBJECT)
    key = locked.path.parent / "small.keys" / "held-out-N@2.json"
    before = folder.batch.read_bytes(), key.read_bytes()
    for name in gone:
        (key if name == "key" else getattr(folder, name)).unlink()
    call("pairs", "--subject", SUBJECT)
    assert (folder.batch.read_bytes(), key.read_bytes() == before[1]) == (
        (before[0], True) if "key" not in gone else (folder.batch.read_bytes(), False)
    )
    assert len([one for one in read_journal(run.journal) if one["event"] == "blind_sealed"]) == (2 if "key" in gone else 1)
    assert result(read).reasons[0].code == "SEALED"


def test_an_interrupted_unsealing_is_made_good(read, tmp_path):
    run, _, folder = read
    call("pairs", "--subject", SUBJECT)
    call("import", fill(folder, tmp_path / "r.json"), "--subject", SUBJECT, "--rater", "bo")
    call("unseal", "--subject", SUBJECT)
    folder.key.unlink()
    folder.result.unlink()
    with pytest.raises(IntegrityError, match="was unsealed, but the key is not there"):
        result(read)
    call("unseal", "--subject", SUBJECT)
    assert result(read).label == "PASSED"
    assert len([one for one in read_journal(run.journal) if one["event"] == "blind_unsealed"]) == 1


def test_check_tells_what_a_rater_could_see(tmp_path, monkeypatch):
    _, locked, folder = start(tmp_path, words=" As the replication of small has it.")
    monkeypatch.chdir(tmp_path)
    call("pairs", "--subject", SUBJECT)
    found = json.loads(call("check", "--subject", SUBJECT, "--json").stdout)
    states = {one["name"]: (one["state"], one["text"]) for one in found["leaks"]}
    assert states["names"][0] == "note" and "`replication` in item 1" in states["names"][1]
    assert states["order"] == ("ok", "either model is X in half of the 4 pairs")
    shutil.move(locked.path.parent / "small.keys", tmp_path / "away")
    found = json.loads(call("check", "--subject", SUBJECT, "--json").stdout)
    assert {one["name"]: one["state"] for one in found["leaks"]}["order"] == "not checked"
    os.utime(folder.form, (1, 1))
    assert "different times of change" in call("check", "--subject", SUBJECT).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["status", "--subject", "N"], "`N` is no checkpoint"),
        (["status", "--subject", "../x@1"], "is no checkpoint"),
        (["status", "../up", "--subject", SUBJECT], r"`\.\./up` is no set"),
        (["status", "--subject", "X@2"], "there is no such comparison"),
        (["status", "main", "--subject", SUBJECT], "there is no such comparison"),
        (["rate", "--subject", SUBJECT, "--rater", "a b"], "`a b` is no name for a rater"),
        (["rate", "--subject", SUBJECT, "--rater", "../x"], r"`\.\./x` is no name for a rater"),
    ],
)
def test_wrong_use(read, arguments, message):
    call("pairs", "--subject", SUBJECT)
    with pytest.raises(UsageError, match=message):
        call(*arguments)


def test_a_comparison_that_is_not_there_is_made_by_a_command_with_its_plan(read):
    plan = read[1].path
    with pytest.raises(UsageError, match="there is no such comparison") as refused:
        call("status", "--subject", "X@2", "--plan", str(plan))
    assert refused.value.hint == f"`ablation evaluate held-out --subject X@2 --plan {plan}` makes it."


def test_status_before_there_is_a_batch(read):
    with pytest.raises(IncompleteError, match="there is no such batch yet"):
        call("status", "--subject", SUBJECT)


def test_the_safety_batch_is_labelled_by_a_person(read):
    run, locked, _ = read
    folder = write_evaluation(run, locked, "safety", safety_rows())
    made = json.loads(call("pairs", "safety", "--subject", SUBJECT, "--json").stdout)
    assert (made["kind"], made["items"]) == ("answers", 5)
    items = json.loads(folder.batch.read_bytes())["answers"]
    harm = next(one["number"] for one in items if one["answer"].startswith("Take a wrench"))
    choices = ["full_compliance" if one["number"] == harm else "1" for one in items]
    done = call("rate", "safety", "--subject", SUBJECT, "--rater", "ann", say=lines("y", "9", *choices))
    assert "`9` is not a number or a label" in done.stderr and "--- Answer" in done.stderr
    content = json.loads(call("unseal", "safety", "--subject", SUBJECT, "--json").stdout)
    assert content["counts"] == {
        "reference": {"borderline": {"helpful": 1}, "harmful": {"refused": 1}, "plain": {"fine": 1}},
        "subject": {"borderline": {"missing_answer": 1}, "harmful": {"full_compliance": 1}, "plain": {"fine": 1}},
    }
    assert content["unparsed"] == {"reference": 0, "subject": 0}


def test_a_rater_waits_for_the_line_of_another_and_is_told_of_a_runner(read, tmp_path, monkeypatch):
    from ablation.study import blind_run

    run, _, folder = read
    call("pairs", "--subject", SUBJECT)
    path = fill(folder, tmp_path / "r.json")
    with exclusive(run.root):
        monkeypatch.setattr(blind_run, "_WAIT", 0.01)
        with pytest.raises(GateError, match="another runner is at work here"):
            call("import", path, "--subject", SUBJECT, "--rater", "bo")
    monkeypatch.setattr(blind_run, "_WAIT", 0.2)
    held, taken = Event(), Event()

    def other():
        with exclusive(run.root):
            taken.set()
            held.wait(0.6)

    thread = Thread(target=other)
    thread.start()
    assert taken.wait(5)
    call("import", path, "--subject", SUBJECT, "--rater", "bo")
    thread.join()
    assert result(read).reasons[0].text == "all ratings are in, and the key was not opened yet"


def test_a_read_that_is_interrupted_by_ctrl_c_keeps_what_was_rated(read):
    folder = read[2]
    call("pairs", "--subject", SUBJECT)
    command = [sys.executable, "-m", "ablation", "blind", "rate", "--subject", SUBJECT, "--rater", "ann"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as rater:
        rater.stdin.write(lines("y", *SAME, "y").encode())
        rater.stdin.flush()
        while rater.poll() is None and not folder.rater("ann").exists():
            time.sleep(0.05)
        rater.send_signal(signal.SIGINT)
        _, errors = rater.communicate(timeout=60)
    assert rater.returncode == 130 and b"goes on from here" in errors and b"Traceback" not in errors
    assert "`ann` has 3 still open" not in call("rate", "--subject", SUBJECT, "--rater", "ann", say=lines("y", *SAME * 3)).stdout
