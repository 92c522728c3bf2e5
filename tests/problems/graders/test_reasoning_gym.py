"""Scores of real reasoning-gym datasets; the problems' truth is checked by hand where it is short."""

import pytest

from ablation.errors import UsageError
from ablation.problems.grade import Grade, check_problems, grade, grade_all
from ablation.problems.graders import reasoning_gym
from ablation.problems.graders.reasoning_gym_work import is_arithmetic
from ablation.problems.problem import Problem
from ablation.problems.workers import close_workers

COUNTDOWN = Problem(
    "countdown-1", "countdown", "Use 3, 5 and 7 once each to make 22.", "reasoning_gym", "3*5+7",
    entry={"dataset": "countdown", "seed": 1, "index": 0, "config": {}, "metadata": {"numbers": [3, 5, 7], "target": 22}},
)  # fmt: skip
SPELL = Problem(
    "string-1", "string_insertion", "Insert.", "reasoning_gym", "DDABA",
    entry={"dataset": "string_insertion", "seed": 1, "index": 0, "config": {}, "metadata": {}},
)  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def _no_worker_is_left():
    yield
    close_workers()


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("7 + 3*5", Grade("correct", "7 + 3*5")),  # another way to 22
        ("<answer>5*3 + 7</answer>", Grade("correct", "5*3 + 7")),
        ("<answer>1</answer> no: <answer> 7+5*3 </answer> done", Grade("correct", "7+5*3")),
        (r"So \boxed{7+(3*5)}.", Grade("correct", "7+(3*5)")),
        ("3*5*7", Grade("incorrect", "3*5*7", "wrong_answer")),
        ("22", Grade("incorrect", "22", "wrong_answer")),  # it does not use the numbers
        ("I think 3*5+7 works", Grade("incorrect", "I think 3*5+7 works", "unreadable_answer")),
        ("", Grade("no_answer", None, "empty")),
        ("<answer> </answer>", Grade("no_answer", None, "empty")),
    ],
)
def test_an_answer_is_scored_by_its_dataset(answer, found):
    assert grade(COUNTDOWN, answer) == found


def test_no_answer_is_evaluated(tmp_path):  # B03
    mark = tmp_path / "mark"
    touch = f"__import__('pathlib').Path({str(mark)!r}).touch()"
    answers = [touch, f"[{touch}]", f"<answer>{touch} or 22</answer>", "(3*5+7).__class__", "exec(1)", "lambda: 22"]
    found = grade_all([(problem, answer) for problem in (COUNTDOWN, SPELL) for answer in answers])
    assert {one.status for one in found} == {"incorrect"}
    assert not mark.exists()


def test_a_list_of_characters_is_read_as_data():
    assert grade(SPELL, "DDABA") == Grade("correct", "DDABA")
    assert grade(SPELL, "['D', 'D', 'A', 'B', 'A']") == Grade(
        "incorrect", "['D', 'D', 'A', 'B', 'A']", "partly_right"
    )  # score 0.1


def test_what_counts_as_arithmetic():
    assert all(map(is_arithmetic, ["3*(5-7)/2", "x**2/2 + C", "exp(2*x) - asin(x)", "-0.5*x", ".5", "5!"]))
    assert not any(map(is_arithmetic, ["x.is_real", "__x", "a=1", "eval(1)", "'x'", "[1]", "x;y", "1e5.real", "{}", "Σ"]))


@pytest.mark.parametrize(
    "name", ["intermediate_integration", "polynomial_multiplication", "puzzle24", "simple_integration", "countdown"]
)
def test_the_golds_of_what_is_parsed_are_arithmetic(name):
    import reasoning_gym as gym

    dataset = gym.create_dataset(name, size=20, seed=3)
    golds = [dataset[place]["answer"] for place in range(20)]
    # An integral that was left as it is would be its own answer; such golds are refused.
    assert {gold for gold in golds if not is_arithmetic(gold)} == {gold for gold in golds if "Integral" in gold}


def test_a_dataset_that_does_not_exist_is_a_grader_error_and_refused():
    problem = Problem("p", "s", "?", "reasoning_gym", "1", entry=COUNTDOWN.entry | {"dataset": "count_up"})
    assert grade(problem, "1") == Grade("grader_error", "1", "unreadable_entry")
    assert len(check_problems({"p": problem})) == 1


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"dataset": "countdown"}, "problem `p`: entry.seed: is missing"),
        (COUNTDOWN.entry | {"index": "3"}, "problem `p`: entry.index: found '3', not int"),
        (COUNTDOWN.entry | {"seeds": 3}, "problem `p`: entry: unknown field `seeds`"),
    ],
)
def test_an_entry_names_the_field_that_is_wrong(entry, said):
    with pytest.raises(UsageError, match=said):
        grade(Problem("p", "s", "?", "reasoning_gym", "1", entry=entry), "1")


def test_another_version_is_refused(monkeypatch):
    monkeypatch.setattr(reasoning_gym, "VERSION", "0.0.1")
    with pytest.raises(UsageError, match=r"reasoning-gym 0\.1\.25 is installed; grader `reasoning_gym` was made for 0\.0\.1"):
        grade(COUNTDOWN, "7+3*5")
