"""Runs that are not finished, stopped, imported, deviated from or reported: the report says what is missing and what it rests on."""

from __future__ import annotations

import json

import pytest

from ablation.report.post.build import NOT_WANTED, document
from ablation.report.post.cost import device_of, kind_of, run_cost
from ablation.report.post.document import Label
from ablation.report.post.study import study_of_figures
from ablation.report.post.traces import Traces
from ablation.verdict.reported import judge_reported
from tests.audit.build import make_run
from tests.imports.test_stage import bring_all
from tests.report.post.made import report_of, study_of, words
from tests.verdict.study import lock_small, start_run, write_stage, write_stop, write_study
from tests.verdict.test_phase2 import deviate
from tests.verdict.test_reported import FILES, TESSERA


def row_of(found, table, first):
    rows = next(one for one in found.tables() if one.key == table).rows
    return [cell.text for cell in next(row for row in rows if row[0].text == first)]


def test_a_run_that_has_not_begun(tmp_path):
    locked = lock_small(tmp_path / "plans")
    run = start_run(tmp_path / "runs" / "small", locked)
    found = report_of(run.root, locked)
    text = words(found)
    assert found.label == Label("INCOMPLETE", "open")
    assert "Unfinished. This study is not finished, so its main question has no answer yet." in text
    assert (
        "main/start: the sweep is not there" in text or "main/C: the sweep is not there" in text or "ablation run --all" in text
    )
    assert row_of(found, "runs", "main/C") == ["main/C", "0 of 2", "-", "not begun"]
    assert row_of(found, "runs", "main/start") == ["main/start", "-", "-", "not there"]
    assert row_of(found, "runs", "replication/(first stable arm)")[-1] == "not known yet which"
    assert "No arm has a readout yet." in text and "The journal tells of no work yet." in text


def test_a_run_that_is_half_done_says_what_is_missing_and_how_to_make_it(tmp_path):
    locked = lock_small(tmp_path / "plans")
    run = start_run(tmp_path / "runs" / "small", locked)
    write_stage(run, locked, "main", "start", {"clean": 12, "cut": 2})
    write_stage(run, locked, "main", "C", {"clean": 7, "cut": 2})
    found = report_of(run.root, locked)
    text = words(found)
    assert found.label.text == "INCOMPLETE"
    assert "main/N: the readout is not there" in text and "ablation run --arm N" in text
    assert row_of(found, "readouts-main", "C")[1:3] == ["7", "-5"]
    assert row_of(found, "labels", "main/C")[1:] == ["DAMAGED", "fired: clean_lost"]
    assert "None fired in any run so far." in text


def test_a_stopped_arm_is_a_line_of_the_flow_and_has_no_readout(tmp_path):
    locked = lock_small(tmp_path / "plans")
    run = start_run(tmp_path / "runs" / "small", locked)
    write_study(run, locked, {("main", "C"), ("replication", "C")})
    for file in run.readout("main", "X").iterdir():
        file.unlink()
    write_stop(run, locked, "main", "X", {"rule": "logprob_fell", "update": 2, "reason": "it fell by 0.4"})
    found = report_of(run.root, locked)
    text = words(found)
    assert row_of(found, "runs", "main/X") == ["main/X", "0 of 2", "-", "STOPPED: rule logprob_fell after update 2"]
    assert "stopped: X, by logprob_fell after update 2" in text
    assert "stop rule `logprob_fell` ended the run after update 2, so it has no readout: it fell by 0.4." in text
    assert "None fired" not in text
    assert row_of(found, "labels", "main/X")[1:] == ["STOPPED", "stop rule logprob_fell"]


def test_imported_rollouts_are_marked_wherever_a_label_is(tmp_path):
    locked = lock_small(tmp_path / "plans")
    root = tmp_path / "runs" / "small"
    bring_all(locked, root)
    found = report_of(root, locked)
    text = words(found)
    assert "(imported" in found.label.text
    labels = next(one for one in found.tables() if one.key == "labels")
    assert all("imported" in row[1].text for row in labels.rows)
    assert "All rollouts were sampled elsewhere and imported" in text
    assert row_of(found, "runs", "main/C")[1] == "elsewhere"
    assert "no stop rule was watched and no update audited" in text
    assert row_of(found, "cost", "imported (sampled elsewhere)")[2] != "0"


def test_a_deviation_stands_beside_every_label_and_in_words(tmp_path):
    locked = lock_small(tmp_path / "plans")
    run = start_run(tmp_path / "runs" / "small", locked)
    write_study(run, locked, {("main", "C"), ("replication", "C")})
    deviate(run, locked, "held-out")
    found = report_of(run.root, locked)
    assert found.label.text == "REPLICATED (deviation 1)"
    labels = next(one for one in found.tables() if one.key == "labels")
    assert all(row[1].text.endswith("(deviation 1)") for row in labels.rows)
    text = words(found)
    assert "opens held-out" in text and "had been seen" in text


def reported(name: str):
    path = FILES / name
    found = judge_reported(path, TESSERA)
    traces = Traces(None, name, "plans/tessera.yaml")
    study = study_of_figures(TESSERA, found, traces, luck=None, plan_file="plans/tessera.yaml", lock=None)
    return document(study, TESSERA, None, NOT_WANTED)


def test_reported_figures_say_that_nothing_was_computed():
    found = reported("study.yaml")
    text = words(found)
    assert found.label.text == "NOT_REPLICATED"
    assert "Reported figures, no rollouts. Nothing in this report was computed or checked from rollouts" in text
    assert "Held-out N, main, 5 updates: WIN_UNVERIFIED under a deviation that its source declares" in text
    assert row_of(found, "readouts-main", "C")[1:4] == ["-", "-25", "62"]
    assert "The file has no figures of single updates" in text and "cannot be checked" in text
    assert "ablation verdict --plan plans/tessera.yaml --measures study.yaml" in text
    assert all(cell.trace.files == ("study.yaml",) for _, cell in found.traces())
    assert "first RL attempt, updates 4-5: clean 51 of 108 against 76 of 108, -23 percentage points" in text


@pytest.mark.parametrize(
    ("name", "label"),
    [("release-15.yaml", "NO_RELEASE (undeclared deviation)"), ("release-8.yaml", "RELEASE (undeclared deviation)")],
)
def test_a_reported_release_carries_its_marks(name, label):
    found = reported(name)
    text = words(found)
    assert "Undeclared. Release" in text and "It is not locked, so it may have been written or changed after" in text
    assert "locked plan" not in text
    assert label in [row[1].text for row in next(one for one in found.tables() if one.key == "labels").rows]


def test_the_drift_is_the_difference_to_the_control_by_hand(tmp_path):
    """`make_run` gives every rollout of a stage one logprob, so a paired difference is the difference of two numbers."""
    made = make_run(tmp_path)
    study = study_of(made.run.root, made.locked)
    of = {(one.family, one.arm, one.stage): one for one in study.points}
    for one in study.points:
        own, control = (
            json.loads((made.run.arm(one.family, arm) / one.stage / "measures.json").read_bytes()) for arm in (one.arm, "C")
        )
        assert float(one.estimates["logprob"].value) == pytest.approx(own["logprob"] - control["logprob"], abs=1e-12)
        assert float(one.estimates["top20_entropy"].value) == pytest.approx(
            own["top20_entropy"] - control["top20_entropy"], abs=1e-12
        )
    assert {key[0] for key in of} == {"main", "replication"} and ("main", "X", "readout") in of
    assert float(of["main", "N", "update-1"].estimates["logprob"].value) == 0


def test_a_run_without_changes_gives_the_same_bytes_twice(tmp_path):
    from ablation.report.post.write import report_files

    made = make_run(tmp_path)
    first, second = (
        report_files(report_of(made.run.root, made.locked), study_of(made.run.root, made.locked).data()) for _ in range(2)
    )
    assert first == second


EVENTS = [
    {"event": "model_loaded", "time": "2026-01-01T00:00:00+00:00", "environment": {"accelerator": "H200", "threads": 4}},
    {"event": "stage_sampled", "stage": "main/start/sweep", "rollouts": 10, "tokens": 100, "seconds": 4.0},
    {"event": "stage_sampled", "stage": "main/C/update-1", "rollouts": 5, "tokens": 50, "seconds": 2.0},
    {"event": "update_trained", "arm": "main/C", "update": 1, "tokens": 40, "seconds": 1.5},
    {"event": "model_loaded", "time": "2026-01-01T00:10:00+00:00", "environment": {"cpu": "Xeon", "threads": 1}},
    {"event": "stage_sampled", "stage": "evaluations/held-out/N@5/subject", "rollouts": 7, "tokens": 70, "seconds": 3.5},
    {"event": "stage_reused", "stage": "evaluations/selection/N@5/reference", "rollouts": 6},
    {"event": "stage_imported", "stage": "main/N/readout", "rollouts": 8, "tokens": 80},
    {"event": "runner_started", "time": "2026-01-01T01:00:30+00:00"},
]


def test_what_a_run_took_is_summed_from_its_journal():
    found = run_cost(EVENTS)
    assert {kind: (one.stages, one.rollouts, one.tokens, one.seconds) for kind, one in found.kinds.items()} == {
        "sweep": (1, 10, 100, 4.0),
        "update": (1, 5, 50, 2.0),
        "evaluation": (1, 7, 70, 3.5),
        "training": (1, 0, 40, 1.5),
    }
    assert (found.sampled.rollouts, found.sampled.tokens, found.seconds) == (22, 220, 11.0)
    assert found.devices == {"H200": 7.5, "Xeon, 1 thread": 3.5}
    assert (found.reused, found.imported.rollouts, found.wall_seconds) == (6, 8, 3630.0)


def test_names_of_devices_and_kinds():
    assert device_of({}).words == "a processor" and device_of({"cpu": "Xeon", "threads": 2}).words == "Xeon, 2 threads"
    assert [kind_of(one) for one in ("main/C/update-12", "main/C/readout", "main/N/check-4", "evaluations/main/N@5/subject")] == [
        "update",
        "readout",
        "check",
        "evaluation",
    ]
