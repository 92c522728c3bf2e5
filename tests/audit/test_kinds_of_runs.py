"""Runs of other kinds: stopped arms, imported rollouts, undefined measures, slow graders, checkpoints taken away."""

import json
import shutil

import pytest

from ablation.audit.run import audit_run
from ablation.files import json_bytes, sha256_bytes, write_bytes
from ablation.training.stops import fired_rule
from tests.audit.build import EXTENSION, Made, make_run, write_verdict
from tests.audit.build_phase2 import compare, files
from tests.audit.faults import edit_info, edit_rows, reseal


def audited(made: Made):
    made.journal.close()
    write_verdict(made)
    found = audit_run(made.run.root, plan=made.locked.path)
    assert found.found.differences == []
    return found


def stopped_control(folder) -> Made:
    """C fell by 0.4 nats at update 2 and was ended; N and X are stable."""
    made = make_run(folder, set(), extended=False, deviation=False)
    shutil.rmtree(made.run.arm("main", "C"))
    made.journal.close()
    reseal(made.run.root, lambda records: [one for one in records if "main/C" not in str(one.get("stage", one.get("arm")))])
    made.journal = type(made.journal)(made.run.journal, made.locked.digest)
    made.update("main", "C", 1, {"clean": 5})
    made.update("main", "C", 2, {"clean": 4}, logprob=-0.9)
    metrics = [json.loads(made.run.audit("main", "C", k).read_bytes())["metrics"] for k in (1, 2)]
    record = json_bytes(fired_rule(made.plan.stop_rules, metrics))
    told = {"arm": "main/C", "rule": "logprob_fell", "update": 2, "reason": json.loads(record)["reason"]}
    made.journal.append("arm_stopped", **told, stopped_sha256=sha256_bytes(record))
    write_bytes(made.run.stopped("main", "C"), record)
    return made


def test_a_stopped_arm(tmp_path):
    made = stopped_control(tmp_path)
    found = audited(made)
    assert found.labels == {
        "replication": "NOT_REPLICATED",
        "main/C": "STOPPED",
        "main/N": "STABLE",
        "main/X": "STABLE",
        "replication/C": "STABLE",
        "replication/N": "STABLE",
    }
    path = made.run.stopped("main", "C")
    told = json.loads(path.read_bytes())
    path.unlink()
    lines = audit_run(made.run.root).found.differences
    assert any("stop rule `logprob_fell` holds at update 2, and the arm was not ended there" in line for line in lines)
    assert any("tells of main/C/stopped.json, which is not there" in line for line in lines) or len(lines) > 1
    write_bytes(path, json_bytes(told | {"rule": "another"}))
    lines = audit_run(made.run.root).found.differences
    assert any("says that rule `another` ended the arm at update 2; the metrics give logprob_fell" in line for line in lines)


@pytest.mark.parametrize(("idle", "label"), [("main/C", "UNDECIDED"), ("replication/N", "UNDECIDED")])
def test_an_arm_that_took_no_step(tmp_path, idle, label):
    made = make_run(tmp_path, extended=False, deviation=False, idle=idle)
    labels = audited(made).labels
    assert (labels["replication"], labels[idle]) == (label, "NO_STEP")
    assert [one for one, found in labels.items() if found == "NO_STEP"] == [idle]


def test_imported_rollouts(tmp_path):
    """Sweeps and readouts of another trainer, without seeds or logprobs: labels rest on counts alone."""
    made = make_run(tmp_path, extended=False, deviation=False)
    root = made.run.root
    made.journal.close()
    engine = {"name": "imported", "source": ["rows.jsonl"], "sha256": ["0" * 64], "token_ids": "given", "logprobs": False}
    engine |= {"top_entropy": False, "seeds": "absent", "prompts": "absent", "finish": "given"}
    nothing = ("logprobs", "top_entropy", "top_mass")
    for stage in [*root.glob("*/*/update-*")]:
        shutil.rmtree(stage)
    for stage in sorted(root.glob("*/*/*/stage.json")):
        for part in ("part-000.parquet", "part-001.parquet"):
            blank = {name: lambda own: [float("nan")] * len(own) for name in nothing}
            edit_rows(
                stage.parent,
                lambda rows, b=blank: [row.update({n: f(row[n]) for n, f in b.items()}) for row in rows] and None,
                part,
            )
        edit_info(stage.parent, engine=engine, adapter_sha256="")
        (stage.parent / "measures.json").unlink()

    def as_imported(records):
        kept = [one for one in records if one["event"] in ("runner_started", "stage_sampled", "stage_graded")]
        kept = [one for one in kept if "update-" not in str(one.get("stage"))]
        given = {"event": "stage_imported", "source": engine["source"], "source_sha256": engine["sha256"]}
        return [one | given if one["event"] == "stage_sampled" else one for one in kept]

    reseal(root, as_imported)
    write_verdict(made)
    found = audit_run(root, plan=made.locked.path)
    assert found.found.differences == [] and found.found.missing == []
    assert found.labels["main/N"] == "UNDECIDED"  # its rule on logprobs cannot be said
    assert found.labels["main/C"] == "DAMAGED"
    assert "seeds of main/N/readout: imported without seeds" in found.found.cannot
    assert "sampling settings of imported stages: they are as the importer says" in found.found.cannot


def test_undefined_logprobs(tmp_path):
    made = make_run(tmp_path, extended=False, deviation=False)
    root = made.run.root
    made.journal.close()
    edit_rows(root / "main/N/readout", lambda rows: rows[0].update(logprobs=[float("-inf")] * len(rows[0]["logprobs"])))
    (root / "main/N/readout/measures.json").unlink()
    reseal(root)
    write_verdict(made)
    found = audit_run(root, plan=made.locked.path)
    assert found.found.differences == []
    assert found.found.missing == ["main/N/readout: measures.json"] and found.exit_code == 6
    assert found.labels["main/N"] == "UNDECIDED" and found.labels["replication"] == "UNDECIDED"


def test_checkpoints_may_be_taken_away(tmp_path):
    made = make_run(tmp_path, deviation=False)
    for folder in made.run.root.glob("*/*/update-*/checkpoint"):
        shutil.rmtree(folder)
    found = audited(made)
    assert any(line.startswith("12 checkpoints: they are not in the folder") for line in found.found.cannot)
    assert found.exit_code == 0


@pytest.mark.parametrize(
    ("damaged", "label"),
    [
        ({("main", "C")}, "NOT_REPLICATED"),
        ({("main", "C"), ("replication", "C"), ("replication", "N")}, "NOT_REPLICATED"),
        ({("main", "C"), ("replication", "C")}, "REPLICATED"),
    ],
)
def test_labels_by_which_arms_were_damaged(tmp_path, damaged, label):
    found = audited(make_run(tmp_path, damaged, extended=False, deviation=False))
    assert found.labels["replication"] == label


@pytest.mark.parametrize("arms", [["N"], "first_stable"])
def test_an_arm_that_the_plan_does_not_extend_is_no_candidate_here_either(tmp_path, arms):
    place = {"at": "selection.jsonl", "sha256": sha256_bytes(files()["selection.jsonl"])}
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "selection.jsonl").write_bytes(files()["selection.jsonl"])
    selection = {"problems": place, "rollouts": 24, "prefer": [{"measure": "correct", "order": "highest"}]}
    made = make_run(tmp_path, deviation=False, extension=EXTENSION | {"arms": arms, "selection": selection})
    made.extend("X", {"clean": 14})
    compare(made, "selection", "N@4", {"clean": 15}, {"clean": 14})
    compare(made, "selection", "X@4", {"clean": 16}, {"clean": 14})  # better, and not asked for
    labels = audited(made).labels
    assert labels["selection N@4"] == "SELECTED" and "selection X@4" not in labels
    assert json.loads(made.run.verdict.read_bytes())["sections"]["selection"]["subject"] == "N@4"
