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


def test_an_unknown_id_use_or_file(project):
    assert "no mark has a problem `x`" in call("show", "--problem", "x")[2].message
    assert "no use of a problem" in call(*MARK[:3], "seen", *MARK[4:])[2].message
    assert "could not be read" in call("check", "none.jsonl")[2].message
