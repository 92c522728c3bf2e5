"""Whole runs by import: labels, marks, gates, journal and ledger."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ablation.errors import GateError, IncompleteError, IntegrityError, UsageError
from ablation.imports.stage import grade_imported, import_stage, make_request
from ablation.ledger.ledger import ledger_path, read_ledger
from ablation.rollouts.folder import RunFolder
from ablation.rollouts.journal_chain import check_journal, read_journal
from ablation.rollouts.marked import unmarked_stages
from ablation.rollouts.seen import seen_so_far
from ablation.rollouts.store import read_stage, stage_info
from ablation.study.schedule import cells_of_update
from ablation.study.state import run_state
from ablation.verdict.run import judge_run
from tests.imports.made import IDS, given_rows, own_seed, write_rows
from tests.verdict.study import start_run, write_stage, write_study

DAMAGED = {("main", "C"), ("replication", "C")}


@pytest.fixture
def root(tmp_path):
    return tmp_path / "runs" / "small"


def bring(locked, root, rows, stage, arm=None, family=None, update=None, suffix="jsonl", **more):
    path = write_rows(root.parents[1] / "brought" / f"{family or 'main'}-{arm or 'start'}-{stage}{update or ''}.{suffix}", rows)
    more = {"ids": IDS} | more
    done = import_stage(locked, root, make_request(locked, stage, arm, family, update, files=[path], **more))
    assert grade_imported(locked, root, done.folder) == []
    return done


def bring_all(locked, root, change=lambda row: row, **more):
    """All that the plan asks for: the control damaged, the others not."""
    for family, arms in (("main", "CNX"), ("replication", "CN")):
        bring(locked, root, [change(row) for row in given_rows(locked, family)], "sweep", None, family, **more)
        for arm in arms:
            rows = given_rows(locked, family, clean=7 if (family, arm) in DAMAGED else 13)
            bring(locked, root, [change(row) for row in rows], "readout", arm, family, **more)


def without(*names):
    return lambda row: {name: value for name, value in row.items() if name not in names}


def test_a_run_imported_in_whole_gets_the_label_of_its_rollouts_with_the_mark(locked, root, tmp_path):
    bring_all(locked, root)
    found = judge_run(root, locked)
    sampled = start_run(tmp_path / "sampled", locked)
    write_study(sampled, locked, DAMAGED)
    own = judge_run(sampled.root, locked)
    assert (found.label, own.label) == ("REPLICATED", "REPLICATED")
    assert (
        [one.label for one in found.arms]
        == [one.label for one in own.arms]
        == ["DAMAGED", "STABLE", "STABLE", "DAMAGED", "STABLE"]
    )
    content = found.as_json()
    assert (content["label"], content["bare_label"]) == ("REPLICATED (imported)", "REPLICATED")
    assert [arm["label"] for arm in content["arms"]] == [
        "DAMAGED (imported)",
        *["STABLE (imported)"] * 2,
        "DAMAGED (imported)",
        "STABLE (imported)",
    ]
    assert content["labels"] == {"replication": "REPLICATED (imported)"}
    assert sorted(content["imported"]) == [
        "main/C/readout", "main/N/readout", "main/X/readout", "main/start/sweep",
        "replication/C/readout", "replication/N/readout", "replication/start/sweep",
    ]  # fmt: skip
    engine = content["imported"]["main/N/readout"]
    assert engine["source"] == ["main-N-readout.jsonl"] and len(engine["sha256"][0]) == 64
    assert {name: engine[name] for name in ("token_ids", "logprobs", "top_entropy", "seeds", "prompts", "finish")} == {
        "token_ids": "given", "logprobs": True, "top_entropy": True, "seeds": "plan", "prompts": "ids", "finish": "given"
    }  # fmt: skip
    assert own.marks == () and own.as_json()["imported"] == {}


def test_what_is_stored_is_what_was_given_in_the_plans_order(locked, root):
    rows = given_rows(locked)
    folder = bring(locked, root, rows[::-1], "sweep").folder
    stage = read_stage(folder)
    assert list(zip(stage.problem, stage.effort, stage.index.tolist(), strict=True)) == [
        (row["problem"], row["effort"], row["index"]) for row in rows
    ]
    assert stage.token_ids.tolist() == [one for row in rows for one in row["token_ids"]]
    assert stage.seed.tolist() == [row["seed"] for row in rows]
    assert stage.prompt_opens_thinking.all() and set(stage.prompt_length.tolist()) == {3}
    assert json.loads((folder / "measures.json").read_bytes())["clean"] == 12
    assert (folder / "grades.json").is_file()


def test_parquet_is_the_same_as_json_lines(locked, root, tmp_path):
    one = bring(locked, root, given_rows(locked), "sweep").folder
    other = bring(locked, tmp_path / "runs" / "other", given_rows(locked), "sweep", suffix="parquet").folder
    assert read_stage(one).rollouts() == read_stage(other).rollouts()


def test_journal_ledger_and_state_tell_of_it(locked, root, tmp_path):
    bring_all(locked, root)
    state = check_journal(root, locked.digest)
    events = [event for event in state.events if event["event"] == "stage_imported"]
    assert [event["stage"] for event in events][:2] == ["main/start/sweep", "main/C/readout"]
    assert events[0]["source"] == ["main-start-sweep.jsonl"] and events[0]["rollouts"] == 24
    assert seen_so_far(root, state)[0] == "results"
    ledger = read_ledger(ledger_path(locked.path))
    assert [(mark.stage, mark.use) for mark in ledger.marks][:2] == [
        ("main/start/sweep", "sampled"),
        ("main/C/readout", "evaluated"),
    ]
    assert ledger.marks[0].reason == "sampled elsewhere, imported from main-start-sweep.jsonl"
    assert unmarked_stages(ledger, tmp_path / "runs") == []
    shown = run_state(locked.plan, root)
    assert len(shown.imported) == 7 and all(arm.imported and arm.finished for arm in shown.arms)
    stage = RunFolder(root).sweep("main") / "stage.json"
    stage.write_bytes(stage.read_bytes().replace(b"main-start", b"mine-start"))
    with pytest.raises(IntegrityError, match="another main/start/sweep/stage.json"):
        check_journal(root, locked.digest)


def test_an_import_that_was_killed_before_its_stage_is_brought_again(locked, root):
    folder = bring(locked, root, given_rows(locked), "sweep").folder
    (folder / "stage.json").unlink()  # as if killed between the event and the marker
    (folder / "grades.json").unlink()
    bring(locked, root, given_rows(locked), "sweep")
    assert [event["event"] for event in read_journal(root / "journal.jsonl")].count("stage_imported") == 2
    assert len(read_ledger(ledger_path(locked.path)).marks) == 1


def test_without_logprobs_what_needs_them_is_open_and_says_why(locked, root):
    poor = without("logprobs", "top_entropy", "top_mass")
    for family, arms in (("main", "CNX"), ("replication", "C")):
        bring(locked, root, [poor(row) for row in given_rows(locked, family)], "sweep", None, family)
        for arm in arms:
            rows = given_rows(locked, family, clean=7 if (family, arm) in DAMAGED else 13)
            bring(locked, root, [poor(row) for row in rows], "readout", arm, family)
    with pytest.raises(IncompleteError, match="main/N is undecided .logprob_lost: main/N/readout was imported without logprobs"):
        bring(locked, root, [poor(row) for row in given_rows(locked, "replication")], "readout", "N", "replication")
    stage = read_stage(RunFolder(root).sweep("main"))
    assert np.isnan(stage.logprobs).all() and np.isnan(stage.top_entropy).all()
    found = judge_run(root, locked)
    arms = {one.name: one for one in found.arms}
    assert arms["main/C"].label == "DAMAGED"  # a rule that fires needs no other
    assert (arms["main/N"].label, found.label) == ("UNDECIDED", "UNDECIDED")
    [rule] = [one for one in arms["main/N"].rules if one.rule.name == "logprob_lost"]
    assert (rule.holds, rule.reason) == (None, "main/N/readout was imported without logprobs")
    assert arms["main/N"].figures.subject["logprob"] is None
    assert any("main/N/readout: imported from" in note and "; no logprobs" in note for note in found.notes)


@pytest.mark.parametrize(
    ("change", "label", "note"),
    [
        (without("seed"), "REPLICATED (imported; without seeds)", "main/C: whether its rollouts have the seed of their partner in the sweep is not known"),
        (lambda row: row | {"seed": own_seed(row)}, "REPLICATED (imported)", "seeds of its own, not the plan's"),
        (without("prompt_token_ids"), "REPLICATED (imported)", "whether its rollouts have the prompt of their partner"),
        (without("finish_reason"), "REPLICATED (imported)", "sampling settings as the importer says"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_said(locked, root, change, label, note):
    bring_all(locked, root, change, opens=True)
    found = judge_run(root, locked)
    assert found.shown(found.label) == label
    assert any(note in one for one in found.notes)


def test_rollouts_of_other_seeds_or_prompts_than_the_sweeps_are_refused(locked, root):
    bring(locked, root, given_rows(locked), "sweep")
    rows = given_rows(locked)
    others = [row | {"seed": own_seed(row)} for row in rows]
    for changed in (others, [rows[0] | {"prompt_token_ids": [7, 7, 1]}, *rows[1:]]):
        with pytest.raises(IntegrityError, match="rollout p0@low #0 has another"):
            bring(locked, root, changed, "readout", "C", opens=True)
    assert not RunFolder(root).arm("main", "C").exists()


def test_what_will_never_be_decided_and_a_file_that_was_another_stages_are_told_at_once(locked, root):
    poor = [without("logprobs")(row) for row in given_rows(locked, "main")]
    assert "warning: logprob_lost cannot be said of these rollouts (main/start/sweep was imported without logprobs)" in " ".join(
        bring(locked, root, poor, "sweep", None, "main").notes
    )
    rows = given_rows(locked, "main", clean=13)
    assert not any("warning" in note for note in bring(locked, root, rows, "readout", "C", "main").notes)
    [warning] = [note for note in bring(locked, root, rows, "readout", "N", "main").notes if "warning" in note]
    assert warning.endswith("has the bytes that were imported as main/C/readout: is it the right file?")


def test_an_update_has_the_cells_of_its_deal(locked, root):
    bring(locked, root, given_rows(locked), "sweep")
    cells = [(cell.problem, cell.effort) for cell in cells_of_update(locked.plan, "main", 2)]
    assert len(cells) == 6
    done = bring(locked, root, given_rows(locked, stage="update", update=2, cells=cells), "update", "C", update=2)
    assert done.folder == RunFolder(root).update("main", "C", 2)
    assert (stage_info(done.folder).stage, stage_info(done.folder).update, done.rollouts) == ("update", 2, 12)
    assert done.info.engine["seeds"] == "plan"
    assert read_ledger(ledger_path(locked.path)).marks[-1].use == "trained"
    with pytest.raises(UsageError, match=r"p\d@\w+ is no cell of main/C/update-1"):
        bring(locked, root, given_rows(locked, stage="update", update=1, cells=cells), "update", "C", update=1)


def test_gates(locked, root, tmp_path):
    with pytest.raises(GateError, match="the sweep of main comes first") as early:
        bring(locked, root, given_rows(locked), "readout", "C")
    assert early.value.hint == f"Run `ablation import --stage sweep --family main --plan {locked.path} FILE`."
    assert not root.exists()  # nothing was written
    bring(locked, root, given_rows(locked), "sweep")
    with pytest.raises(GateError, match="main/start/sweep is there already; a stage is never replaced"):
        bring(locked, root, given_rows(locked), "sweep")
    bring(locked, root, given_rows(locked, "replication"), "sweep", None, "replication")
    with pytest.raises(IncompleteError, match="which arm is replicated is not known yet"):
        bring(locked, root, given_rows(locked, "replication"), "readout", "N", "replication")
    for arm in "CNX":
        bring(locked, root, given_rows(locked), "readout", arm)
    with pytest.raises(GateError, match="that is N, not X"):
        bring(locked, root, given_rows(locked, "replication"), "readout", "X", "replication")
    bring(locked, root, given_rows(locked, "replication"), "readout", "N", "replication")


def test_a_run_of_our_own_takes_no_imports_without_a_deviation(locked, tmp_path):
    run = start_run(tmp_path / "runs" / "small", locked)
    write_stage(run, locked, "main", "start")
    with pytest.raises(GateError, match="was sampled by this program, and a run does not mix engines"):
        bring(locked, run.root, given_rows(locked), "readout", "C")
    from ablation.plan.deviations import record_deviation

    record_deviation(locked, reason="The machine is gone; another lab samples.", seen="progress", opens=["engine"])
    with pytest.raises(IntegrityError, match="has another seed than in the sweep"):  # the sweep of this test has seeds of its own
        bring(locked, run.root, given_rows(locked), "readout", "C")
    rows = [without("seed", "prompt_token_ids")(row) for row in given_rows(locked, clean=13)]
    bring(locked, run.root, rows, "readout", "C", opens=True)
    found = judge_run(run.root, locked)
    assert found.arms[0].marks == ("imported", "without seeds")
    assert found.as_json()["arms"][0]["label"] == "STABLE (deviation 1; imported; without seeds)"
    assert "main/C: of sweep and readout one was imported, so the engine changed between them" in found.notes


def test_a_label_names_the_arms_that_were_imported_where_others_were_not(locked, tmp_path):
    run = start_run(tmp_path / "runs" / "small", locked)
    write_study(run, locked, DAMAGED)
    from dataclasses import replace

    found = judge_run(run.root, locked)
    arms = [replace(one, marks=("imported", "retokenized")) if one.arm == "N" else one for one in found.arms]
    mixed = replace(found, arms=arms)
    assert mixed.shown(mixed.label) == "REPLICATED (imported: main/N, replication/N; retokenized)"


def test_missing_stages_are_named_with_the_command_that_imports_them(locked, root):
    bring(locked, root, given_rows(locked), "sweep")
    found = judge_run(root, locked, " --plan plans/small.yaml")
    commands = {one.what: one.command for one in found.missing}
    assert commands["main/C: the readout is not there"] == "ablation import --arm C --stage readout --plan plans/small.yaml FILE"
    assert commands["replication/start: the sweep is not there"].startswith("ablation import --stage sweep --family replication")
    assert found.next_command is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("check", "C"), "--stage: found `check`; it must be sweep, readout, update"),
        (("sweep", "C"), "--arm: a sweep is of the starting model"),
        (("readout",), "--arm: say whose this is; the arms are C, N, X"),
        (("readout", "Q"), "--arm: there is no arm `Q`"),
        (("readout", "C", "other"), "there is no family `other`; its families are main, replication"),
        (("readout", "C", None, 1), "--update goes with --stage update"),
        (("update", "C", None, 3), "--update: say which one, from 1 to 2"),
        (("update", "C"), "--update: say which one, from 1 to 2"),
    ],
)
def test_wrong_options_are_named(locked, options, message):
    stage, arm, family, update = (*options, *[None] * (4 - len(options)))
    with pytest.raises(UsageError, match=message):
        make_request(locked, stage, arm, family, update, files=[])


def test_ids_must_be_known_and_the_same_in_all_stages(locked, root):
    with pytest.raises(UsageError, match="the ids of <think>, </think>, <.end.> are not known"):
        bring(locked, root, given_rows(locked), "sweep", ids=None)
    with pytest.raises(UsageError, match="--ids: found `1,2`; it must be the ids of <think>, </think>, <.end.>"):
        bring(locked, root, given_rows(locked), "sweep", ids="1,2")
    bring(locked, root, given_rows(locked), "sweep")
    bring(locked, root, given_rows(locked), "readout", "C", ids=None)  # those of the sweep
    with pytest.raises(UsageError, match="the tags and end tokens are 1,2,4 here, but 1,2,3 in"):
        bring(locked, root, given_rows(locked), "readout", "N", ids="1,2,4")


def test_the_problems_must_be_those_that_the_plan_was_locked_with(locked, root):
    path = locked.path.parent / "problems.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"gold": "5"', b'"gold": "6"'))
    with pytest.raises(IntegrityError, match="is not the file of training problems"):
        bring(locked, root, given_rows(locked), "sweep")
    path.unlink()
    with pytest.raises(UsageError, match="problems.training: `problems.jsonl` is not at"):
        bring(locked, root, given_rows(locked), "sweep")
    assert not root.exists()
