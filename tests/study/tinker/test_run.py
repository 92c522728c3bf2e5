"""A whole study at a real server as the command line runs it: killed, gone on with, judged and audited."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from ablation.audit.adapters import adapter_digest
from ablation.plan.lock import lock_plan, verify_lock
from ablation.policy.tinker.weights import digest, from_folder
from ablation.rollouts.journal_chain import check_journal
from ablation.rollouts.store import read_stage
from tests.policy.tinker.server import service_tree, write_tree
from tests.study.mini import ablation, command, environment

pytestmark = pytest.mark.slow

RUN = ("run", "--all", "--policy", "tinker")
PATIENCE = 1200.0


def ended(folder: Path, served, until=None, *, torch: bool = True) -> tuple[int, str]:
    """(exit code, what it said) of the study's command; it is killed as soon as `until` is true. Without `torch` it has none."""
    output = folder / "output.txt"
    variables = environment() | served.environment
    if not torch:
        variables["PYTHONPATH"] = f"{Path(__file__).parent / 'no_torch'}:{variables['PYTHONPATH']}"
    with output.open("w") as file:
        process = subprocess.Popen(command(*RUN), cwd=folder, env=variables, stdout=file, stderr=file)
        end = time.monotonic() + PATIENCE
        while process.poll() is None and not (until is not None and until()):
            assert time.monotonic() < end, output.read_text()[-3000:]
            time.sleep(0.01)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        code = process.wait(60)
    return code, " ".join(output.read_text().split())


def checkpoints(run: Path) -> dict[str, str]:
    return {path.relative_to(run).as_posix(): digest(from_folder(path)) for path in sorted(run.rglob("checkpoint"))}


@pytest.fixture(scope="module")
def finished(served, tmp_path_factory):
    """A study that ran without a stop and without torch, and one that was killed three times."""
    folders = {}
    for name in ("quiet", "killed"):
        folder = folders[name] = tmp_path_factory.mktemp(name)
        lock_plan(write_tree(folder, service_tree(served.model)))
    quiet, killed = folders["quiet"], folders["killed"]
    code, said = ended(quiet, served, torch=False)
    assert code == 0, said[-3000:]
    run = killed / "runs" / "served-tinker"
    moments = (
        (run / "main/C/update-1/stage.json").is_file,  # while it is graded and trained
        (run / "main/K/update-1/audit.json").is_file,  # trained, and not yet saved
        lambda: any((run / "main/K/readout").glob("*")),  # while it is sampled
    )
    for moment in moments:
        code, said = ended(killed, served, moment)
        assert code == -signal.SIGKILL, said[-3000:]
    code, said = ended(killed, served)
    assert code == 0, said[-3000:]
    return quiet, killed


def test_a_killed_study_has_the_rollouts_and_adapters_of_a_quiet_one(finished):
    quiet, killed = (folder / "runs" / "served-tinker" for folder in finished)
    stages = sorted(path.relative_to(quiet).as_posix() for path in quiet.rglob("part-*.parquet"))
    assert len(stages) == len(sorted(killed.rglob("part-*.parquet"))) > 8
    for folder in sorted({Path(one).parent.as_posix() for one in stages}):
        one, other = read_stage(quiet / folder), read_stage(killed / folder)
        assert one.token_ids.tolist() == other.token_ids.tolist(), folder
    saved = checkpoints(quiet)
    assert saved == checkpoints(killed)
    start = read_stage(quiet / "main/start/sweep").info.adapter_sha256
    for arm in ("main/C", "main/K", "replication/C"):  # every update moved its adapter
        assert len({start, *(saved[f"{arm}/update-{k}/checkpoint"] for k in (1, 2))}) == 3


def test_the_audit_agrees_and_there_is_a_verdict(finished):
    for folder in finished:
        audit = ablation(folder, "audit", "runs/served-tinker")
        assert audit.returncode == 0, audit.stdout + audit.stderr
        assert "AGREES" in audit.stdout
        verdict = ablation(folder, "verdict", "--run", "runs/served-tinker", "--json")
        assert json.loads(verdict.stdout)["label"] in ("REPLICATED", "NOT_REPLICATED")


def test_what_the_journal_and_a_checkpoint_say(finished, served):
    run = finished[0] / "runs" / "served-tinker"
    events = check_journal(run, verify_lock(finished[0] / "plans" / "served.yaml").digest).events
    (loaded,) = [event for event in events if event["event"] == "model_loaded"]
    assert loaded["machine"] == {"server": served.server.url, "start_state": served.start}
    assert loaded["preflight"]["reduction"] == {"tokens": "mean", "rows": "mean"}
    assert (
        "torch" in loaded["environment"]["packages"] and loaded["environment"]["threads"] is None
    )  # installed and not to be had
    assert loaded["preflight"]["mismatch_here"] is None
    killed = finished[1] / "runs" / "served-tinker"
    events_killed = check_journal(killed, verify_lock(finished[1] / "plans" / "served.yaml").digest).events
    proofs = [event["preflight"] for event in events_killed if event["event"] == "model_loaded"]
    assert len(proofs) == 4
    assert all(0 < proof["mismatch_here"] < 1e-4 for proof in proofs)
    trained = [event for event in events if event["event"] == "update_trained"]
    assert len(trained) == 6
    assert all(event["stepped"] and event["trained_tokens"] > 0 for event in trained)
    checkpoint = run / "main" / "C" / "update-2" / "checkpoint"
    told = json.loads((checkpoint / "service.json").read_text())
    assert told["state"].startswith("tinker://")
    assert told["adapter_sha256"] == adapter_digest(checkpoint / "adapter_model.safetensors")
    readout = read_stage(run / "main" / "C" / "readout")
    assert readout.info.adapter_sha256 == told["adapter_sha256"]
    assert readout.info.engine["name"] == "tinker"
    audit = json.loads((run / "main" / "C" / "update-1" / "audit.json").read_text())
    assert audit["metrics"]["entropy"] is None
    assert audit["metrics"]["grad_norm"] > 0
    assert audit["metrics"]["mismatch_mean"] < 1e-5
    everything = b"".join(path.read_bytes() for path in run.rglob("*") if path.is_file())
    assert served.environment["TINKER_API_KEY"].encode() not in everything


def test_a_state_that_holds_something_else_ends_the_run_before_anything_is_sampled(served, tmp_path):
    lock_plan(write_tree(tmp_path, service_tree(served.model)))
    wrong = served.environment | {"ABLATION_TINKER_START": served.start + "x"}
    found = ablation(tmp_path, *RUN, more=wrong)
    assert found.returncode == 2, found.stdout + found.stderr
    assert "it has no state tinker://" in " ".join(found.stderr.split())
    assert "Traceback" not in found.stderr
    assert not list((tmp_path / "runs").rglob("part-*"))


def test_a_missing_start_is_said_with_what_to_do(served, tmp_path):
    lock_plan(write_tree(tmp_path, service_tree(served.model)))
    found = ablation(tmp_path, *RUN, more={"TINKER_API_KEY": "tml-x", "ABLATION_TINKER_SERVER": served.server.url})
    assert found.returncode == 2
    assert "ABLATION_TINKER_START is not set" in " ".join(found.stderr.split())


def test_doctor_says_what_was_proven(served, tmp_path):
    write_tree(tmp_path, service_tree(served.model))
    found = ablation(tmp_path, "doctor", "--plan", "plans/served.yaml", "--policy", "tinker", more=served.environment)
    assert found.returncode == 0, found.stderr
    said = " ".join(found.stdout.split())
    assert "start state holds the plan's start adapter, rank 8, alpha 32" in said
    assert "losses mean over tokens, mean over rows, made a sum; scale 1.00" in said
    assert "norm of the gradient told as skyrl.ai/grad_norm" in said
