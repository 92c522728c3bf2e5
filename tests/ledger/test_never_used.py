import json
from pathlib import Path

import pytest
import yaml

from ablation.files import sha256_file
from ablation.ledger.ledger import ledger_path, write_mark
from ablation.ledger.never_used import never_used_problems, used_before
from ablation.plan.load import load_plan
from ablation.problems.problem import Problem, problem_line

ROOT = Path(__file__).parents[2]


def problem(name, prompt):
    return Problem(name, "s", prompt, "exact", "g")


@pytest.fixture
def plan_with(tmp_path):
    """A copy of the quickstart plan whose never-used set holds the problems that are given."""

    def write(problems, **more):
        (tmp_path / "plans").mkdir(exist_ok=True)
        fresh = tmp_path / "plans" / "fresh.jsonl"
        fresh.write_text("\n".join(map(problem_line, problems)) + "\n")
        tree = yaml.safe_load((ROOT / "plans" / "quickstart.yaml").read_text())
        rule = {"name": "right", "measure": "correct", "compare": "value", "op": ">=", "limit": 1}
        tree["verdict"]["never_used"] = {
            "rollouts": 4,
            "rules": [rule],
            "problems": {"at": "fresh.jsonl", "sha256": sha256_file(fresh)},
        } | more
        path = tmp_path / "plans" / "quickstart.yaml"
        path.write_text(yaml.safe_dump(tree, sort_keys=False))
        return load_plan(path).plan, path

    return write


def trained():
    """A problem that the quickstart plan trains on."""
    line = (ROOT / "ablation" / "assets" / "tiny-reasoner" / "problems.jsonl").read_text().split("\n")[0]
    return json.loads(line)["prompt"]


def test_new_problems_are_fine(plan_with):
    assert never_used_problems(*plan_with([problem("a", "Name a cat.")])) == []


def test_a_training_problem_under_another_id_is_found(plan_with):
    (line,) = never_used_problems(*plan_with([problem("a", trained()), problem("b", "Name a cat.")]))
    assert line.startswith("`a` is `") and line.endswith("of the training problems")


def test_a_mark_of_another_study_is_found(plan_with):
    plan, path = plan_with([problem("a", "Name 2 cats."), problem("b", "Name a dog.")])
    used = [problem("x", "Name 7 cats.")]
    write_mark(ledger_path(path), plan="d" * 64, study="other", stage="main/C/readout", use="evaluated", problems=used)
    (line,) = never_used_problems(plan, path)
    assert line.startswith("`a` is the same but for its numbers as `x`, which was evaluated in other, main/C/readout (mark 1, ")


def test_a_plan_may_allow_near_duplicates_but_not_the_problem_itself(plan_with):
    plan, path = plan_with([problem("a", "Name 2 cats."), problem("b", "Name 7 cats.")], near_duplicates="allow")
    write_mark(
        ledger_path(path), plan="", study="o", stage="s", use="sampled", problems=[problem("x", "Name 7 cats.")], reason="r"
    )
    (line,) = never_used_problems(plan, path)
    assert line.startswith("`b` is `x`, which was sampled")


def test_marks_of_this_comparison_do_not_count_against_it_and_all_others_do(plan_with):
    problems = [problem("a", "Name a cat.")]
    plan, path = plan_with(problems)
    own, other = "d" * 64, "e" * 64
    for digest, stage in ((own, "evaluations/never-used/N@2/start"), (own, "evaluations/never-used/M@2/start"), (other, "x")):
        write_mark(ledger_path(path), plan=digest, study="s", stage=stage, use="evaluated", problems=problems)

    def found(digest, subject):
        return [one.mark.number for one in used_before(plan, path, digest, "never-used", subject, problems)]

    assert found(own, "N@2") == [2] and found(own, "M@2") == [1] and found(other, "N@2") == [1]
