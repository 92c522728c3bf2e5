import json

import pytest
from typer.testing import CliRunner

from ablation.cli.main import app
from ablation.errors import UsageError

GOOD = '{"id": "a", "source": "sums", "prompt": "1+1?", "grader": "math", "gold": "2"}\n'


def run(*arguments):
    return CliRunner().invoke(app, ["problems", *map(str, arguments)])


def test_check_prints_counts_and_ends_with_0(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text(GOOD + GOOD.replace('"a"', '"b"').replace("1+1", "2-0"))
    done = run("check", path)
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "sums  math               2",
        "2 problems, 2 of 2 golds grade as correct, 0 repeat the text of another",
    ]


def test_check_ends_with_2_and_says_why(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text(GOOD + GOOD.replace('"a"', '"b"') + GOOD.replace('"a"', '"c"').replace("1+1", "?").replace('"2"', '"½"'))
    done = run("check", path)
    assert done.exit_code == 2
    assert done.stderr.splitlines() == [
        f"{path}: problem `c`: gold `½` does not grade as correct against itself (grader `math`)",
        f"{path}: problem `b` has the text of {path}: problem `a`",
    ]
    told = json.loads(run("check", path, "--json").stdout)
    assert (told["good"], told["files"], len(told["failed"]), len(told["repeated"])) == (False, {str(path): 3}, 1, 1)
    assert told["counts"] == [{"source": "sums", "grader": "math", "problems": 3}]


def test_make_writes_a_set_once(tmp_path):
    path = tmp_path / "set.jsonl"
    made = run("make", "reasoning-gym", "chain_sum", "--size", 5, "--seed", 7, "--out", path, "--json")
    told = json.loads(made.stdout)
    assert (told["problems"], told["passed_over"]) == (5, {"repeated": 0, "without_gold": 0})
    assert len(path.read_text().splitlines()) == 5
    assert run("check", path).exit_code == 0
    again = run("make", "reasoning-gym", "chain_sum", "--size", 5, "--seed", 8, "--out", path)
    assert isinstance(again.exception, UsageError) and "is there already" in again.exception.message
    assert run("make", "reasoning-gym", "chain_sum", "--size", 5, "--seed", 7, "--out", path, "--force").exit_code == 0
    assert (
        f"sha256 {told['sha256']}"
        in run("make", "reasoning-gym", "chain_sum", "--size", 5, "--seed", 7, "--out", path, "--force").stdout
    )


def test_make_human_eval_writes_164_problems(tmp_path):
    path = tmp_path / "he.jsonl"
    assert json.loads(run("make", "human-eval", "--out", path, "--json").stdout)["problems"] == 164


@pytest.mark.parametrize("config", ["{", "[1]"])
def test_settings_are_a_json_object(tmp_path, config):
    done = run("make", "reasoning-gym", "chain_sum", "--size", 5, "--seed", 7, "--out", tmp_path / "x", "--config", config)
    assert isinstance(done.exception, UsageError) and done.exception.message.startswith("--config: not ")
