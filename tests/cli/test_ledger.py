import json

import pytest
from typer.testing import CliRunner

from ablation.cli.main import app
from ablation.problems.problem import Problem, problem_line


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, prompts in {"old": ["What is 1 + 2?", "Name a cat."], "new": ["Name a dog.", "What is 5 + 7?"]}.items():
        lines = [problem_line(Problem(f"{name}-{k}", "s", prompt, "exact", "g")) for k, prompt in enumerate(prompts)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


def call(*arguments):
    result = CliRunner().invoke(app, ["ledger", *arguments])
    return result.exit_code, result.output, result.exception


MARK = ("import", "old.jsonl", "--use", "evaluated", "--study", "benchmark", "--reason", "ran it in May")


def test_mark_look_up_and_check(project):
    assert call("check", "new.jsonl")[1] == "none of these problems has a mark, or is alike to one that has (0 marks)\n"
    assert call(*MARK)[1] == "old.jsonl: 2 problems in mark 1\n"
    assert call(*MARK)[1] == "old.jsonl: was marked so before\n"
    code, _, error = call("check", "new.jsonl")
    assert error.message.startswith(
        "`new-1` is the same but for its numbers as `old-0`, which was evaluated in benchmark, imported (mark 1"
    )
    assert error.exit_code == 4 and "1 problems are not new" in error.hint
    code, text, _ = call("check", "new.jsonl", "--json")
    assert code == 4 and json.loads(text)["conflicts"] == [{"problem": "new-1", "other": "old-0", "near": True, "mark": 1}]
    assert call("check")[1].startswith("1 marks; the chain holds and no run beside it lacks one; head 1:")
    assert " evaluated      2 problems  benchmark imported: ran it in May" in call("show")[1]
    assert json.loads(call("show", "--problem", "old-1", "--json")[1])["marks"][0]["problems"] == ["old-0", "old-1"]


def test_what_is_said_of_one_study_is_not_said_of_another(project):
    call(*MARK)
    other = ("import", "old.jsonl", "--use", "evaluated", "--study", "another", "--reason", "ran it in June")
    assert call(*other)[1] == "old.jsonl: 2 problems in mark 2\n"
    assert call(*other)[1] == "old.jsonl: was marked so before\n"


def test_a_last_line_that_is_not_whole_is_told(project):
    call(*MARK)
    path = project / "runs" / "ledger.jsonl"
    path.write_bytes(path.read_bytes()[:-1])
    for command in (("show",), ("check",), ("check", "new.jsonl")):
        code, text, _ = call(*command)
        assert code == 0 and "runs/ledger.jsonl: after mark 0 there are " in text


@pytest.mark.parametrize("text", ["", "  ", "\udcff"])
def test_a_study_or_reason_that_says_nothing_is_refused(project, text):
    assert "study: found " in call(*MARK[:5], text, *MARK[6:])[2].message
    assert "reason: found " in call(*MARK[:7], text)[2].message
    assert not (project / "runs").exists()


def test_an_unknown_id_use_or_file(project):
    assert "no mark has a problem `x`" in call("show", "--problem", "x")[2].message
    assert "no use of a problem" in call(*MARK[:3], "seen", *MARK[4:])[2].message
    assert "could not be read" in call("check", "none.jsonl")[2].message
