"""`ablation status`, and how a run is stopped by a signal, on a real run."""

import json
import signal
import subprocess

import pytest

from ablation.cli.status import _packed, _set
from ablation.study.phase2_state import ComparisonState, SetState
from tests.study.mini import ROOT, ablation, command, environment, mini_tree, write_plan


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("status")
    assert ablation(folder, "plan", "lock", str(write_plan(folder, mini_tree()))).returncode == 0
    return folder


def next_command(folder) -> str:
    return ablation(folder, "status").stdout.splitlines()[-1].split(maxsplit=1)[1]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_with_the_command_that_goes_on(folder, number, code):
    process = subprocess.Popen(
        command("run", "--all"),
        cwd=folder,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        # A background job's children ignore SIGINT; no thread runs here that a fork could upset.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    process.stderr.readline()  # at work
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    assert errors.splitlines()[-1] == "stopped; nothing that was written is lost. Go on with: ablation run --all"


@pytest.mark.slow
def test_status_leads_to_the_verdict(folder):
    assert next_command(folder) == "ablation run --all"
    one_arm = ablation(folder, "run", "--arm", "C")
    assert one_arm.stderr.splitlines()[-1] == "next: ablation run --all"
    done = ablation(folder, "run", "--all")
    assert done.stderr.splitlines()[-1] == "next: ablation verdict"
    assert next_command(folder) == "ablation verdict"
    assert ablation(folder, "verdict").returncode == 0


@pytest.mark.slow
def test_with_two_locked_plans_printed_commands_name_theirs(folder):
    other = write_plan(folder, mini_tree() | {"name": "other"})
    assert ablation(folder, "plan", "lock", str(other)).returncode == 0
    try:
        shown = ablation(folder, "status", "--plan", "plans/other.yaml").stdout
        assert shown.splitlines()[-1].endswith("ablation run --all --plan plans/other.yaml")
    finally:
        other.with_suffix(".lock").unlink()
        other.unlink()


def test_figures_of_a_check_fit_on_a_line():
    figures = [f"{name} +0 (fires at <= -7)" for name in ("clean_lost", "truncated_more", "looping_more", "logprob_lost")]
    assert _packed(figures, 65) == figures  # the first two take 30 + 2 + 34
    assert _packed(figures, 66) == [", ".join(figures[:2]), ", ".join(figures[2:])]
    assert _packed(figures, 1000) == [", ".join(figures)] and _packed([]) == []


def test_the_set_is_not_called_as_the_family_is():
    assert _set(SetState("main", 1, [])) == ["main set: not begun; deviation 1 opens it"]
    one = ComparisonState("main", "N@5", "yes", "yes", True, None, 1, {"subject": 30, "reference": 33}, False, None)
    assert _set(SetState("main", 1, [one])) == ["main set: N@5: start: yes, subject: yes; correct 30, the start 33 (deviation 1)"]


def test_a_record_is_a_run_folder_like_any_other():
    """It keeps no checkpoints: its readouts show that all five updates were trained."""
    folder = ROOT / "runs" / "records" / "smollm2"
    done = ablation(ROOT, "status", str(folder))
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("arm ")]
    assert "arm      main/N: 5 of 5 updates (no checkpoint is here), readout: yes" in lines
    assert not any(": 0 of 5" in line for line in lines)
    told = json.loads(ablation(ROOT, "status", "--run", str(folder), "--json").stdout)
    arm = next(one for one in told["arms"] if (one["family"], one["arm"]) == ("main", "N"))
    audits = len(list((folder / "main" / "N").glob("update-*/audit.json")))
    assert (arm["updates_done"], arm["without_checkpoint"], audits) == (5, 5, 5)


def test_a_run_folder_is_named_once():
    done = ablation(ROOT, "status", "runs/records/smollm2", "--run", "runs/records/smollm2")
    assert done.returncode == 2 and done.stderr.startswith("the run folder is named twice")
