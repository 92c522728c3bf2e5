"""`--policy` and ABLATION_POLICY in every command that finds a run by its plan, and what printed commands repeat of a start."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ablation.cli.main import app
from ablation.errors import AblationError, GateError, UsageError
from ablation.plan.lock import verify_lock
from ablation.rollouts.folder import RunFolder
from tests.verdict.study import lock_small, start_run, tell, write_stage, write_study

RECORD = Path(__file__).parents[2] / "runs" / "records" / "everywhere" / "local"
COMMANDS = {
    "verdict": ["verdict", "--json"],
    "status": ["status", "--json"],
    "report": ["report", "--no-figures", "--json"],
    "show": ["show", "main/N/readout", "--json"],
    "audit": ["audit", "run", "--json"],
    "journal": ["journal", "head", "--json"],
    "grade": ["grade", "--json"],
    "verify": ["plan", "verify", "--json"],
}


def call(*arguments, code=None):
    result = CliRunner().invoke(app, list(map(str, arguments)))
    if isinstance(result.exception, Exception):
        raise result.exception
    assert code in (None, result.exit_code), result.output
    return result


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A plan for two backends whose only run is that of the second one."""
    folder = tmp_path_factory.mktemp("made")
    locked = lock_small(folder / "plans", policy={"backend": "local", "also": ["vllm"]})
    write_study(start_run(folder / "runs" / "small-vllm", locked), locked, {("main", "C"), ("replication", "C")})
    return folder


@pytest.fixture
def looked_at(made, monkeypatch):
    monkeypatch.delenv("ABLATION_POLICY", raising=False)
    monkeypatch.chdir(made)


@pytest.fixture
def study(made, tmp_path, monkeypatch):
    """A copy, to be changed."""
    monkeypatch.delenv("ABLATION_POLICY", raising=False)
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    run = RunFolder(tmp_path / "runs" / "small-vllm")
    run.verdict.unlink(missing_ok=True)
    return run, verify_lock(tmp_path / "plans" / "small.yaml")


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("how", ["option", "variable"])
def test_the_run_of_a_backend_is_found_by_its_name(looked_at, monkeypatch, name, how):
    if how == "variable":
        monkeypatch.setenv("ABLATION_POLICY", "vllm")
    result = call(*COMMANDS[name], *(["--policy", "vllm"] if how == "option" else []))
    assert json.loads(result.stdout)["folder" if name == "report" else "run"].removesuffix("/report").endswith("runs/small-vllm")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_backend_that_the_plan_does_not_name_is_refused_before_anything(looked_at, name):
    with pytest.raises(UsageError, match="--policy: found `tinker`; the plan plans/small.yaml may be run with local or vllm"):
        call(*COMMANDS[name], "--policy", "tinker")


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "verify"])
def test_a_folder_and_a_backend_that_do_not_fit_are_refused(name):
    place = [RECORD] if name in ("report", "audit", "status") else ["--run", RECORD]
    with pytest.raises(UsageError, match="its rollouts were sampled with `local`, and a run does not mix backends; found `vllm`"):
        call(*COMMANDS[name], *place, "--policy", "vllm")


def test_the_variable_is_for_a_folder_that_is_not_named(study, monkeypatch):
    run, _ = study
    monkeypatch.setenv("ABLATION_POLICY", "local")
    assert json.loads(call("verdict", "--run", run.root, "--json").stdout)["label"] == "REPLICATED"
    assert "does not exist" in call("verdict", code=6).stderr


def test_printed_commands_name_the_backend(study):
    run, _ = study
    shutil.rmtree(run.readout("main", "X"))
    assert "Next: ablation run --arm X --policy vllm\n" in call("verdict", "--policy", "vllm", code=6).stderr
    assert call("status", "--policy", "vllm").stdout.endswith("next     ablation run --all --policy vllm\n")
    assert call("status", run.root).stdout.endswith(f"next     ablation run --all --run {run.root}\n")


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed here")
def test_a_run_whose_backend_is_not_installed_leaves_no_folder(study):
    """An empty one would stand beside the others in `ablation compare runs/*`."""
    root = study[0].root
    shutil.rmtree(root)
    with pytest.raises(UsageError, match="`vllm` needs vLLM, which this install does not have"):
        call("run", "--all", "--policy", "vllm")
    assert not root.exists()


@pytest.mark.parametrize("how", ["option", "variable"])
@pytest.mark.parametrize("name", ["report", "audit"])
def test_a_run_that_is_not_there_is_made_by_a_command_with_its_backend(study, monkeypatch, name, how):
    shutil.rmtree(study[0].root)
    if how == "variable":
        monkeypatch.setenv("ABLATION_POLICY", "vllm")
    with pytest.raises(AblationError, match="runs/small-vllm: there is no") as refused:
        call(*COMMANDS[name], *(["--policy", "vllm"] if how == "option" else []))
    assert refused.value.hint == "`ablation run --all --policy vllm` makes one."


@pytest.mark.parametrize(
    ("machine", "options"),
    [
        ({"turns": "auto", "server": None, "server_folder": None, "processes": 1}, ""),
        ({"turns": "sleep", "server": None, "server_folder": None}, " --turns sleep"),
        (
            {"turns": "auto", "server": "http://10.0.0.7:8000", "server_folder": "/shared/a b", "processes": 4},
            " --server http://10.0.0.7:8000 --server-folder '/shared/a b' --processes 4",
        ),
        ({"server": "http://127.0.0.1:8123", "start_state": "tinker://x"}, ""),  # a service: nothing of it is an option
    ],
)
def test_printed_commands_repeat_what_the_run_was_started_with(study, machine, options):
    run, locked = study
    tell(run, locked, "model_loaded", machine={"turns": "restart"})  # an earlier start
    tell(run, locked, "model_loaded", machine=machine)
    assert call("status", "--policy", "vllm").stdout.endswith("next     ablation verdict --policy vllm\n")
    shutil.rmtree(run.readout("main", "X"))
    assert call("status", "--policy", "vllm").stdout.endswith(f"next     ablation run --all{options} --policy vllm\n")
    assert f"Next: ablation run --arm X{options} --policy vllm\n" in call("verdict", "--policy", "vllm", code=6).stderr
    write_stage(run, locked, "main", "X", {"clean": 12})


def test_processes_of_a_run_without_an_engine_are_repeated(study):
    run, locked = study
    tell(run, locked, "model_loaded", processes={"count": 2, "backend": "gloo", "devices": ["cpu", "cpu"]})
    shutil.rmtree(run.readout("main", "X"))
    assert call("status", "--policy", "vllm").stdout.endswith("next     ablation run --all --processes 2 --policy vllm\n")


def test_figures_have_no_backend(looked_at):
    for command in ("verdict", "report"):
        with pytest.raises(UsageError, match="--policy"):
            call(command, "--measures", "figures.yaml", "--policy", "vllm")


def test_the_viewer_opens_the_run_of_a_backend(looked_at, monkeypatch):
    opened = []
    monkeypatch.setattr("ablation.view.serve.serve", lambda place, *rest, **named: opened.append(place))
    call("view", "--policy", "vllm", code=0)
    call("view", "--plan", "plans/small.yaml", "--policy", "vllm", code=0)
    call("view", code=0)
    assert [str(place).rpartition("/runs")[2] for place in opened] == ["/small-vllm", "/small-vllm", "runs"]


@pytest.mark.parametrize("more", [[], ["--run", "runs/elsewhere"]])
def test_what_was_seen_of_a_run_with_another_backend_was_seen(study, more):
    """Only the run of the second backend is there, and it has readouts."""
    say = ["plan", "deviate", "plans/small.yaml", "--reason", "Something else is done.", *more]
    with pytest.raises(GateError, match="--seen nothing is not so: the journal tells of the readout"):
        call(*say, "--seen", "nothing")
    assert not list(Path("plans").glob("*.deviations.jsonl"))
    call(*say, "--seen", "results", code=0)
