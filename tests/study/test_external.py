"""External arms: what a command is given and must leave, each way in which it can fail, and one that really trains."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ablation.errors import IncompleteError, IntegrityError, UsageError
from ablation.ledger.ledger import ledger_path, read_ledger
from ablation.plan.locate import locate
from ablation.plan.lock import lock_plan, verify_lock
from ablation.rollouts.folder import RunFolder
from ablation.rollouts.journal_chain import read_journal
from ablation.rollouts.store import read_stage
from ablation.seeds import derive_seed
from ablation.study.external import COLUMNS, VARIABLES, Outside
from ablation.study.journal import Journal

from .mini import ROOT, ablation, command, contents, environment, mini_tree, write_plan

README = (ROOT / "runs" / "README.md").read_text()
TRAINER = (Path(__file__).parent / "trainer.py").read_bytes()
COPY = 'cp "$ABLATION_ADAPTER_IN"/adapter_* "$ABLATION_OUT"'
ROWS = [{"problem": "p00", "reward": 1.0}, {"problem": "p01", "reward": 0.0}]


class Said(list):
    """A reporter that keeps what is said."""

    say = list.append


def outside(folder: Path, script: str, **more) -> tuple[Outside, Path]:
    """Arm E of a locked plan, trained by `sh -c script`; and its run folder."""
    tree = mini_tree()
    external = {"command": ["sh", "-c", script], "each": "update"} | more
    tree["arms"] = {"C": tree["arms"]["C"], "E": {"external": external, "learning_rate": 0.25}}
    path = write_plan(folder, tree)
    lock_plan(path)
    locked, root = verify_lock(path), folder / "run"
    root.mkdir()
    return Outside(locked, RunFolder(root), Journal(root / "journal.jsonl", locked.digest), Said()), root


def train(one: Outside, update: int = 1):
    """What the command left: its checked tensors, its state and the rest of what is known."""
    with one.trained("main", "E", update, ROWS) as left:
        files = {path.relative_to(left.folder).as_posix(): path.read_bytes() for path in left.folder.rglob("*") if path.is_file()}
        return left, load_file(left.folder / "adapter_model.safetensors"), files


def start_of(one: Outside) -> Path:
    return locate(one.plan.model.start_adapter, one.locked.path)


def test_what_the_command_is_given(tmp_path, monkeypatch):
    monkeypatch.setenv("ABLATION_STATE_IN", "/of/somebody/else")
    monkeypatch.setenv("MINE", "is kept")
    one, run = outside(tmp_path, f'env > "$PWD/../env"; cp "$ABLATION_ROLLOUTS" ../rollouts; ls "$ABLATION_OUT"; {COPY}')
    left, _, _ = train(one)
    given = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines() if "=" in line)
    ours = {name: value for name, value in given.items() if name in VARIABLES}
    work = Path(ours["ABLATION_OUT"]).parent
    assert work.parent == run / "main/E/update-1" and work.name.startswith(".partial-") and not work.exists()
    assert ours == {
        "ABLATION_PLAN": str(run / "plan.yaml"),
        "ABLATION_PROBLEMS": str(run / "problems.jsonl"),
        "ABLATION_FAMILY": "main",
        "ABLATION_ARM": "E",
        "ABLATION_UPDATE": "1",
        "ABLATION_UPDATES": "2",
        "ABLATION_SEED": str(derive_seed(20261001, "external", 1)),
        "ABLATION_LEARNING_RATE": "0.25",
        "ABLATION_BASE": str(locate(one.plan.model.base, one.locked.path)),
        "ABLATION_ADAPTER_IN": str(work / "adapter"),
        "ABLATION_ROLLOUTS": str(work / "rollouts.jsonl"),
        "ABLATION_OUT": str(work / "out"),
    }
    assert given["MINE"] == "is kept" and given["PWD"] == str(tmp_path / "plans")
    assert [json.loads(line) for line in (tmp_path / "rollouts").read_text().splitlines()] == ROWS
    assert left.log == "main/E/update-1/command-1.log" and (run / left.log).read_bytes() == b""  # ls of an empty folder
    assert set(VARIABLES) == set(ours) | {"ABLATION_STATE_IN"}


def test_all_that_is_given_is_documented():
    for name in (*VARIABLES, *COLUMNS):
        assert f"`{name}`" in README, name


def test_an_adapter_that_did_not_move_is_allowed_and_told(tmp_path):
    one, _ = outside(tmp_path, COPY)
    left, tensors, files = train(one)
    start = load_file(start_of(one) / "adapter_model.safetensors")
    assert left.change == 0.0 and set(files) == {"adapter_model.safetensors", "adapter_config.json"}
    assert all(torch.equal(tensors[name], weight) for name, weight in start.items()) and len(tensors) == len(start)
    assert left.record == {
        "each": "update",
        "command_sha256": hashlib.sha256(json.dumps(["sh", "-c", COPY], separators=(",", ":")).encode()).hexdigest(),
        "files": {},
        "exit_code": 0,
    }


def write_adapter(one: Outside, folder: Path, change) -> Path:
    """A copy of the start adapter after `change`, for a command to leave."""
    shutil.copytree(start_of(one), folder)
    tensors = {name: weight.clone() for name, weight in load_file(folder / "adapter_model.safetensors").items()}
    config = json.loads((folder / "adapter_config.json").read_text())
    change(tensors, config)
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


LEAVE = 'cp -r ../left/. "$ABLATION_OUT"'


def test_the_norm_of_the_change_and_other_types_of_float(tmp_path):
    one, _ = outside(tmp_path, LEAVE)

    def change(tensors, config):
        first = min(tensors)
        tensors[first] = torch.zeros_like(tensors[first])
        tensors[first][0, 0], tensors[first][0, 1] = 3.0, 4.0
        for name in tensors.keys() - {first}:
            tensors[name] = torch.zeros_like(tensors[name], dtype=torch.bfloat16)
        config["base_model_name_or_path"] = "/home/somebody/model"

    write_adapter(one, tmp_path / "left", change)
    start = load_file(start_of(one) / "adapter_model.safetensors")
    first = min(start)
    moved = start[first].double().clone()
    moved[0, 0] -= 3
    moved[0, 1] -= 4
    squares = float(moved.square().sum()) + sum(float(start[name].double().square().sum()) for name in start.keys() - {first})
    left, tensors, files = train(one)
    assert left.change == pytest.approx(squares**0.5, rel=1e-12)
    assert {weight.dtype for weight in tensors.values()} == {torch.float32}
    assert json.loads(files["adapter_config.json"])["base_model_name_or_path"] == "package:tiny-reasoner/base"


def no_change(tensors, config):
    pass


def drop(tensors, config):
    del tensors[min(tensors)]


def extra(tensors, config):
    tensors["lora_E"] = torch.zeros(2)


def frozen(tensors, config):
    tensors["base_model.model.lm_head.base_layer.weight"] = torch.zeros(2)


def reshaped(tensors, config):
    tensors[min(tensors)] = torch.zeros(3, 3)


def infinite(tensors, config):
    tensors[max(tensors)][1, 1] = float("nan")


def whole_numbers(tensors, config):
    tensors[min(tensors)] = tensors[min(tensors)].to(torch.int32)


def other_rank(tensors, config):
    config["r"] = 4


def other_kind(tensors, config):
    config["use_dora"] = True


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop, r"weight `base_model\..*` is missing"),
        (extra, "weight `lora_E` is none of the start adapter's"),
        (
            frozen,
            r"weight `base_model\.model\.lm_head\.base_layer\.weight` .* \(a frozen one; `save_pretrained\(OUT, save_embedding_layers=False\)`",
        ),
        (reshaped, r"has the shape \(3, 3\), the start adapter's has \("),
        (infinite, "holds numbers that are not finite"),
        (whole_numbers, r"has the type torch\.int32, which is no float"),
        (other_rank, r"its adapter is not the plan's: model\.lora\.rank: the plan says 8, the start adapter has 4"),
        (other_kind, "has use_dora true; a plan describes plain LoRA"),
    ],
    ids=lambda one: one.__name__ if callable(one) else "",
)
def test_an_adapter_of_another_shape_is_refused(tmp_path, change, message):
    one, run = outside(tmp_path, LEAVE)
    write_adapter(one, tmp_path / "left", change)
    with pytest.raises(IncompleteError, match=f"main/E: update 1: the command ended well, but .*{message}") as failed:
        train(one)
    assert failed.value.exit_code == 6
    assert (
        f"Look at {run / 'main/E/update-1/command-1.log'}, repair what made it fail and run the same command again"
        in failed.value.hint
    )
    assert [path.name for path in (run / "main/E/update-1").iterdir()] == ["command-1.log"]  # nothing of it is kept


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo one; echo the reason >&2; exit 3", r"the command ended with exit code 3 after \d s; the last line of its output: the reason"),
        ("kill -KILL $$", "the command was killed by SIGKILL"),
        ("exec /no/such/program", "the command ended with exit code 127"),
        ("true", r"it left no adapter_model\.safetensors in ABLATION_OUT \(there is: nothing\)"),
        ('cp "$ABLATION_ADAPTER_IN"/adapter_model* "$ABLATION_OUT"', r"it left no adapter_config\.json in ABLATION_OUT \(there is: adapter_model"),
        (f'{COPY}; truncate -s 1000 "$ABLATION_OUT"/adapter_model.safetensors', r"its adapter_model\.safetensors cannot be read: "),
        (f'{COPY}; echo "{{" > "$ABLATION_OUT"/adapter_config.json', "is not JSON"),
        ('ln -s "$ABLATION_ADAPTER_IN"/* "$ABLATION_OUT"', r"its adapter_model\.safetensors is no plain file"),
        (f'{COPY}; ln -s /etc "$ABLATION_OUT"/state', "it left state, which is no folder"),
        (f'{COPY}; mkdir "$ABLATION_OUT"/state; mkfifo "$ABLATION_OUT"/state/pipe', "it left state/pipe, which is no plain file"),
        (f'{COPY}; mkdir "$ABLATION_OUT"/state; ln -s /etc/passwd "$ABLATION_OUT"/state/link', "it left state/link, which is no plain file"),
    ],
)  # fmt: skip
def test_a_command_that_fails_leaves_nothing_but_its_log(tmp_path, script, message):
    one, run = outside(tmp_path, script)
    with pytest.raises(IncompleteError, match=f"main/E: update 1: .*{message}"):
        train(one)
    assert [path.name for path in (run / "main/E/update-1").iterdir()] == ["command-1.log"]
    started, ended = read_journal(run / "journal.jsonl")
    assert (started["event"], started["command"][0], ended["event"]) == ("command_started", "sh", "command_ended")
    assert ended["log_sha256"] == hashlib.sha256((run / "main/E/update-1/command-1.log").read_bytes()).hexdigest()


def test_a_timeout_is_named_and_every_attempt_keeps_its_log(tmp_path):
    one, run = outside(tmp_path, "echo begun; sleep 60", timeout_minutes=0.01)
    for attempt in (1, 2):
        with pytest.raises(
            IncompleteError, match=r"the command had not ended after 0\.6 s, the plan's timeout, and was killed.*: begun"
        ):
            train(one)
        assert (run / f"main/E/update-1/command-{attempt}.log").read_text() == "begun\n"


def test_what_is_in_state_is_there_at_the_next_update_and_the_inputs_are_copies(tmp_path):
    script = f'{COPY}; rm -r "$ABLATION_ADAPTER_IN"; mkdir -p "$ABLATION_OUT"/state/deep; cat "$ABLATION_STATE_IN"/deep/count 2>/dev/null > "$ABLATION_OUT"/state/deep/count; echo x >> "$ABLATION_OUT"/state/deep/count; rm -rf "$ABLATION_STATE_IN"'
    one, run = outside(tmp_path, script)
    for update in (1, 2):
        with one.trained("main", "E", update, ROWS) as left:
            assert (left.folder / "state/deep/count").read_text() == "x\n" * update
            shutil.copytree(left.folder, run / f"main/E/update-{update}/checkpoint")
    assert (start_of(one) / "adapter_model.safetensors").is_file() and (
        run / "main/E/update-1/checkpoint/state/deep/count"
    ).is_file()


def test_a_script_that_changes_between_two_updates_is_refused(tmp_path):
    (tmp_path / "plans").mkdir()
    script = tmp_path / "plans" / "train.sh"
    script.write_text(COPY)
    digest = hashlib.sha256(COPY.encode()).hexdigest()
    one, _ = outside(tmp_path, ". ./train.sh", files=[{"at": "train.sh", "sha256": digest}])
    left, _, _ = train(one)
    assert left.record["files"] == {"train.sh": digest}
    script.write_text(COPY + "\n")
    with pytest.raises(IntegrityError, match=r"train\.sh: arms\.E\.external\.files\[0\] has changed since"):
        train(one, 1)


def test_a_program_that_is_not_there_is_named_before_anything_is_sampled(tmp_path):
    one, run = outside(tmp_path, "true", command=["no-such-trainer", "--now"])
    with pytest.raises(UsageError, match=r"arms\.E\.external\.command: there is no program `no-such-trainer` on the PATH"):
        one.check("E")
    one.check("C")
    assert list(run.iterdir()) == [run / "journal.jsonl"]


# From here on whole runs, through the command line, with the real model.


def real_plan(folder: Path) -> Path:
    tree = mini_tree()
    (folder / "plans").mkdir()
    (folder / "plans" / "trainer.py").write_bytes(TRAINER)
    own = {"at": "trainer.py", "sha256": hashlib.sha256(TRAINER).hexdigest()}
    half = "import os; from safetensors.torch import load_file, save_file; source, out = os.environ['ABLATION_ADAPTER_IN'], os.environ['ABLATION_OUT']; "
    half += "assert 'ABLATION_UPDATE' not in os.environ and 'ABLATION_ROLLOUTS' not in os.environ; "
    half += "save_file({n: w * 0.5 for n, w in load_file(f'{source}/adapter_model.safetensors').items()}, f'{out}/adapter_model.safetensors'); "
    half += "import shutil; shutil.copy(f'{source}/adapter_config.json', out)"
    tree["arms"] = {
        "W": {"external": {"command": [sys.executable, "-c", half], "each": "arm"}},
        "E": {"external": {"command": [sys.executable, "trainer.py"], "each": "update", "files": [own]}, "learning_rate": 0.5},
    }
    tree["verdict"]["replication"]["control"] = "W"
    tree["stop_rules"].append({"name": "steep", "measure": "grad_norm", "op": ">", "limit": 1e9})  # of weights: says nothing here
    return write_plan(folder, tree)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A folder with a locked plan and the finished run of its arm E."""
    folder = tmp_path_factory.mktemp("external")
    assert ablation(folder, "plan", "lock", str(real_plan(folder))).returncode == 0
    done = ablation(folder, "run", "--arm", "E", more={"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    return folder


def without_logs(run: Path) -> dict[str, bytes]:
    return {name: data for name, data in contents(run).items() if not name.endswith(".log")}


@pytest.mark.slow
def test_a_trainer_that_knows_nothing_of_us_trains_the_arm(trained):
    run = trained / "runs" / "mini"
    audits = [json.loads((run / f"main/E/update-{k}/audit.json").read_text()) for k in (1, 2)]
    stages = [read_stage(run / f"main/{name}") for name in ("start/sweep", "E/update-1", "E/update-2", "E/readout")]
    adapters = [stage.info.adapter_sha256 for stage in stages]
    assert adapters[0] == adapters[1] == audits[0]["external"]["adapter_before"]
    assert adapters[2] == audits[0]["external"]["adapter_after"] == audits[1]["external"]["adapter_before"]
    assert adapters[3] == audits[1]["external"]["adapter_after"] and len(set(adapters)) == 3
    for audit in audits:
        assert audit["weights"] is None and audit["step"]["outcome"] == "stepped" and audit["step"]["change_norm"] > 0
        assert audit["learning_rate"] == 0.5 and audit["metrics"]["negative_share"] is None and audit["metrics"]["nonfinite"] == 0
        assert audit["external"]["files"] == {"trainer.py": hashlib.sha256(TRAINER).hexdigest()}
    steps = json.loads((run / "main/E/update-2/checkpoint/state/steps.json").read_text())
    assert [step["update"] for step in steps] == [1, 2]
    assert max(step["furthest"] for step in steps) < 1e-3  # its logprobs of the exported tokens are those of the sampler
    assert (run / "main/E/update-2/checkpoint/state/deep/seed").read_text() == str(derive_seed(20261001, "external", 2))
    kinds = [event["event"] for event in read_journal(run / "journal.jsonl")]
    assert kinds.count("command_started") == kinds.count("command_ended") == kinds.count("update_trained") == 2


@pytest.mark.slow
def test_a_runner_that_was_killed_while_the_command_ran_starts_it_again(trained, tmp_path):
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    run = tmp_path / "runs" / "mini"
    wanted = without_logs(run)
    for stage in ("update-2", "readout"):
        shutil.rmtree(run / "main" / "E" / stage)
    with (tmp_path / "err").open("wb") as err:
        runner = subprocess.Popen(command("run", "--arm", "E"), cwd=tmp_path, env=environment(), stderr=err)
    for _ in range(1200):
        [*work] = (run / "main/E").glob("update-2/.partial-command-*/out")
        if work and (run / "main/E/update-2/command-1.log").exists():
            break
        assert runner.poll() is None, (tmp_path / "err").read_text()
        time.sleep(0.05)
    runner.send_signal(signal.SIGKILL)
    runner.wait()
    assert work and not (run / "main/E/update-2/audit.json").exists()
    again = ablation(tmp_path, "run", "--arm", "E")
    assert again.returncode == 0, again.stderr
    assert without_logs(run) == wanted
    assert sorted(path.name for path in (run / "main/E/update-2").glob("*.log")) == ["command-1.log", "command-2.log"]


@pytest.mark.slow
def test_one_command_for_a_whole_arm_and_what_every_page_says_of_both(trained, tmp_path):
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    run = tmp_path / "runs" / "mini"
    done = ablation(tmp_path, "run", "--arm", "W")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (run / "main/W").iterdir()) == ["readout", "update-2"]
    audit = json.loads((run / "main/W/update-2/audit.json").read_text())
    start = locate(verify_lock(tmp_path / "plans/mini.yaml").plan.model.start_adapter, tmp_path / "plans/mini.yaml")
    size = sum(float(one.double().square().sum()) for one in load_file(start / "adapter_model.safetensors").values())
    assert audit["step"]["change_norm"] == pytest.approx(0.5 * size**0.5, rel=1e-6) and audit["metrics"]["logprob"] is None
    marks = {mark.stage: mark.use for mark in read_ledger(ledger_path(tmp_path / "plans/mini.yaml")).marks}
    assert marks["main/W/external"] == "trained" and "main/W/update-2" not in marks
    shown = ablation(tmp_path, "status").stdout
    assert "main/E: 2 of 2 updates, readout: yes" in shown and "main/W: 2 of 2 updates, readout: yes" in shown
    weights = ablation(tmp_path, "audit", "weights")
    assert weights.returncode == 0, weights.stderr
    words = " ".join(weights.stdout.split())
    assert "update 2 moved the adapter by" in words and "weights none of ours. What trains it is outside this program" in words
    assert weights.stdout.count("moved the adapter by") == 3 and "Shares are of" not in weights.stdout  # W, and E twice
    rest = ablation(tmp_path, "run", "--all")
    assert rest.returncode == 0, rest.stderr
    verdict = ablation(tmp_path, "verdict")
    assert verdict.returncode == 0, verdict.stderr
    said = "Arms W and E are trained by a command outside this program, which samples, grades and judges but cannot check the training."
    assert said in " ".join(verdict.stdout.split())
    found = json.loads((run / "verdict.json").read_bytes())
    assert found["label"] in ("REPLICATED", "NOT_REPLICATED") and found["external"] == ["W", "E"] and found["audits"] == {}
    labels = {(one["family"], one["arm"]): one["label"] for one in found["arms"]}
    assert labels.keys() >= {("main", "W"), ("main", "E"), ("replication", "W")} and set(labels.values()) <= {"STABLE", "DAMAGED"}
    words = " ".join(ablation(tmp_path, "plan", "review", "plans/mini.yaml").stdout.split())
    assert "trainer.py" in words
    assert "A command outside this program trains W: " in words
    one = ablation(tmp_path, "arms", "show", "E", "--plan", "plans/mini.yaml")
    assert one.returncode == 0 and "At each update a command gets the graded rollouts" in " ".join(one.stdout.split())
    refused = ablation(tmp_path, "arms", "show", "E", "--plan", "plans/mini.yaml", "--example")
    assert refused.returncode == 2 and "there are no weights to work out" in refused.stderr
    (tmp_path / "plans" / "trainer.py").write_bytes(TRAINER + b"\n")
    changed = ablation(tmp_path, "run", "--arm", "E")
    assert changed.returncode == 3 and "arms.E.external.files[0] has changed" in changed.stderr


@pytest.mark.slow
def test_after_a_command_that_failed_the_other_arms_still_run(tmp_path):
    tree = mini_tree()
    fails, copies = (["sh", "-c", script] for script in ("echo no luck; exit 4", COPY))
    tree["arms"] = {name: {"external": {"command": one, "each": "arm"}} for name, one in {"W": fails, "E": copies}.items()}
    tree["verdict"]["replication"]["control"] = "W"
    write_plan(tmp_path, tree)
    lock_plan(tmp_path / "plans" / "mini.yaml")
    done = ablation(tmp_path, "run", "--all")
    assert done.returncode == 6 and "Traceback" not in done.stderr, done.stderr
    assert (
        done.stderr.count("W: the command ended with exit code 4 after 0 s; the last line of its output: no luck") == 3
    )  # main twice
    assert "main/E: update 2: unchanged: the arm's own command left the adapter as it was" in done.stderr
    run = tmp_path / "runs" / "mini"
    before, after = (json.loads((run / f"main/{stage}/stage.json").read_text())["info"] for stage in ("start/sweep", "E/readout"))
    assert before["adapter_sha256"] == after["adapter_sha256"] and not (run / "main/W/readout").exists()
    shown = ablation(tmp_path, "status").stdout
    assert "main/W: 0 of 2 updates, readout: no" in shown
    assert "main/E: 2 of 2 updates, readout: yes; update 2: unchanged" in shown
