import json
import re
import signal
import subprocess
import sys
import time

import pytest

from tests.study.mini import ROOT, ablation, command, environment, mini_tree, write_plan

HEAVY = ("torch", "transformers", "peft", "pydantic", "numpy", "pyarrow", "scipy", "pandas", "yaml", "rich")


def test_help_imports_nothing_heavy():
    code = f"import sys, ablation.cli.main; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    assert done.stdout.strip() == "[]"


def test_plan_and_verdict_import_no_torch():
    code = (
        "import sys, ablation.verdict.run, ablation.verdict.reported, ablation.plan.lock, ablation.report.verdict_tables;"
        "print([name for name in ('torch', 'transformers', 'peft', 'scipy', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    assert done.stdout.strip() == "[]"


def test_version(tmp_path):
    done = ablation(tmp_path, "--version")
    assert (done.returncode, done.stdout) == (0, "ablation 0.1.0\n")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["run", "--all"], 2),  # no plan at all
        (["run", "--all", "--plan", "plans/none.yaml"], 2),
        (["verdict"], 2),
        (["status"], 2),
        (["plan", "check", "none.yaml"], 2),
        (["nonsense"], 2),
        (["run", "--nonsense"], 2),
    ],
)
def test_wrong_use_is_a_line_or_two_and_exit_2(tmp_path, arguments, code):
    done = ablation(tmp_path, *arguments)
    assert done.returncode == code
    assert "Traceback" not in done.stderr and done.stderr.strip()


def test_json_errors_are_one_object_on_stdout(tmp_path):
    done = ablation(tmp_path, "run", "--all", "--plan", str(ROOT / "plans" / "tessera.yaml"), "--json")
    assert done.returncode == 3
    error = json.loads(done.stdout)
    assert error["exit_code"] == 3 and "not locked" in error["error"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["arms", "show", "--json"], "Missing argument 'NAME'"),
        (["arms", "show", "N", "--rollout", "ten", "--json"], "--rollout"),
        (["run", "--arm", "N", "--continue-to", "0", "--json"], "--continue-to"),
        (["run", "--nonsense", "--json"], "--nonsense"),
        (["nonsense", "--json"], "nonsense"),
        (["--nonsense", "--json"], "--nonsense"),
    ],
)
def test_wrong_arguments_are_one_object_too(tmp_path, arguments, words):
    done = ablation(tmp_path, *arguments)
    error = json.loads(done.stdout)
    assert done.returncode == error["exit_code"] == 2 and words in error["error"]
    assert "ablation" in error["hint"] and error["hint"].endswith("--help` says what there is.")
    assert words in done.stderr and "Usage: " in done.stderr
    without = ablation(tmp_path, *arguments[:-1])
    assert (without.returncode, without.stdout, without.stderr) == (2, "", done.stderr)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_stopped_says_so_in_json_too(tmp_path, number, code):
    plan = write_plan(tmp_path, mini_tree())
    assert ablation(tmp_path, "plan", "lock", str(plan)).returncode == 0
    told = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command("run", "--all", "--json"), cwd=tmp_path, env=environment(), **told) as runner:
        journal = tmp_path / "runs" / "mini" / "journal.jsonl"
        while not journal.exists() or b"runner_started" not in journal.read_bytes():
            assert runner.poll() is None
            time.sleep(0.05)
        runner.send_signal(number)
        output, errors = runner.communicate(timeout=60)
    assert runner.returncode == code
    assert json.loads(output) == {
        "error": "stopped; nothing that was written is lost",
        "hint": "Go on with: ablation run --all",
        "exit_code": code,
    }
    assert errors.endswith("stopped; nothing that was written is lost. Go on with: ablation run --all\n")


def test_a_closed_pipe_is_no_error(tmp_path):
    shown = f"{sys.executable} -m ablation plan show {ROOT / 'plans' / 'quickstart.yaml'} | head -1"
    done = subprocess.run(["bash", "-c", shown], capture_output=True, text=True, env=environment(), cwd=tmp_path, check=True)
    assert done.stdout.startswith("quickstart") and "Traceback" not in done.stderr


def test_a_path_that_no_file_can_have_is_no_traceback(tmp_path):
    done = ablation(tmp_path, "status", "--plan", "x" * 300)
    assert done.returncode == 2
    assert done.stderr == f"{'x' * 300}: File name too long\nLook at the path and its permissions.\n"


def test_a_lock_named_as_the_plan_is_left_alone(tmp_path):
    plan = write_plan(tmp_path, mini_tree())
    assert ablation(tmp_path, "plan", "lock", str(plan)).returncode == 0
    lock = plan.with_suffix(".lock")
    before = lock.read_bytes()
    for arguments in (["plan", "restore", str(lock)], ["plan", "lock", str(lock)], ["status", "--plan", str(lock)]):
        done = ablation(tmp_path, *arguments)
        assert done.returncode == 2 and f"Name the plan: {plan}." in done.stderr
    assert lock.read_bytes() == before and sorted(path.name for path in plan.parent.iterdir()) == ["mini.lock", "mini.yaml"]


@pytest.mark.parametrize("reader", ["true", "head -1 > /dev/null"])
@pytest.mark.parametrize("wanted", [["plan", "show"], ["plan", "check"]])
def test_a_reader_that_leaves_early_is_no_error(tmp_path, reader, wanted):
    shown = f"{' '.join(command(*wanted))} {ROOT / 'plans' / 'quickstart.yaml'} | {reader}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shown], capture_output=True, text=True, env=environment(), cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_output_that_cannot_be_written_is_one_line(tmp_path):
    with open("/dev/full", "w") as full:
        asked = command("plan", "show", str(ROOT / "plans" / "quickstart.yaml"))
        done = subprocess.run(asked, stdout=full, stderr=subprocess.PIPE, text=True, env=environment(), cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (2, "the output could not be written: No space left on device\n")


def test_a_terminal_without_unicode_gets_escapes(tmp_path):
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = ablation(tmp_path, "plan", "review", str(ROOT / "plans" / "quickstart.yaml"), more=ascii_only)
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii() and "\\u" in done.stdout


def test_ctrl_c_says_that_the_same_command_goes_on(tmp_path):
    code = (
        "import sys, ablation.cli.main as m, ablation.cli.plan as p;"
        "m.app.registered_commands.clear();\n"
        "@m.app.command('wait')\n"
        "def wait():\n    raise KeyboardInterrupt\n"
        "sys.argv = ['ablation', 'wait']; m.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 130
    assert done.stderr == "\ninterrupted: run the same command again and it goes on from here\n"


HOSTILE = "a\x1b[2J\x1b]0;title\x07\x9b31m\u202eb\nc"


def test_text_of_others_is_shown_and_not_obeyed(tmp_path):
    problem = {"id": "p", "source": HOSTILE, "prompt": "1+1?", "grader": "integer", "gold": HOSTILE}
    (tmp_path / "p.jsonl").write_text(json.dumps(problem) + "\n")
    shown = ablation(tmp_path, "problems", "check", "p.jsonl")  # what it prints of a gold and a source
    assert (shown.returncode, "gold `a\ufffd[2J" in shown.stderr) == (2, True)
    (tmp_path / "p.jsonl").write_text(json.dumps(problem | {"grader": HOSTILE}) + "\n")
    refused = ablation(tmp_path, "problems", "check", "p.jsonl", "--json")  # an error
    safe = "a\\x1b[2J\\x1b]0;title\\x07\\x9b31m\\u202eb\\nc"  # on its line, whatever it holds
    assert json.loads(refused.stdout)["error"] == f"p.jsonl:1: grader: unknown grader `{safe}`"
    marked = ["ledger", "import", "p.jsonl", "--use", "trained", "--study", HOSTILE, "--reason", HOSTILE]
    (tmp_path / "p.jsonl").write_text(json.dumps(problem | {"source": "s", "grader": "exact"}) + "\n")
    assert ablation(tmp_path, *marked).returncode == 0
    ledger = ablation(tmp_path, "ledger", "show")
    assert len(ledger.stdout.splitlines()) == 1
    assert safe in refused.stderr and "\x1b" not in refused.stderr
    for text in (shown.stdout, shown.stderr, ledger.stdout):
        assert "a\ufffd[2J\ufffd]0;title\ufffd\ufffd31m\ufffdb" in text and "\x1b" not in text


def test_an_arm_that_the_plan_does_not_have_is_refused_before_torch_is_loaded(tmp_path):
    tree = mini_tree()
    assert ablation(tmp_path, "plan", "lock", str(write_plan(tmp_path, tree))).returncode == 0
    done = ablation(tmp_path, "run", "--arm", "xk", more={"PYTHONPROFILEIMPORTTIME": "1"})
    assert done.returncode == 2 and "there is no arm `xk`; its arms are C, XK; did you mean `XK`?" in done.stderr
    assert not re.search(r"\| +torch$", done.stderr, re.MULTILINE)


def test_a_working_folder_that_is_gone(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f"import os; os.chdir({str(gone)!r}); os.rmdir({str(gone)!r}); from ablation.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", script, "verdict"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, "the folder that you are in is gone")
