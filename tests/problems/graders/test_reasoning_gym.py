"""Scores of real reasoning-gym datasets; the problems' truth is checked by hand where it is short."""

import json
from dataclasses import replace

import pytest

from ablation.errors import UsageError
from ablation.problems.grade import Grade, check_problems, grade, grade_all
from ablation.problems.graders import reasoning_gym
from ablation.problems.graders.reasoning_gym_work import is_arithmetic
from ablation.problems.problem import Problem
from ablation.problems.sets import reasoning_gym_problems
from ablation.problems.workers import Limits, close_workers

[COUNTDOWN] = reasoning_gym_problems(
    "countdown", 1, 5, {"max_numbers": 3, "min_numbers": 3, "max_value": 9, "min_target": 10, "max_target": 99}
).problems
"""5, 4 and 7 make 55."""
[SPELL] = reasoning_gym_problems("string_insertion", 1, 1).problems


@pytest.fixture(autouse=True, scope="module")
def _no_worker_is_left():
    yield
    close_workers()


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("(7 + 4)*5", Grade("correct", "(7 + 4)*5")),  # another way to 55
        ("<answer>5*(7+4)</answer>", Grade("correct", "5*(7+4)")),
        ("<answer>1</answer> no: <answer> 5*4+5*7 - 0 </answer> done", Grade("incorrect", "5*4+5*7 - 0", "wrong_answer")),
        (r"So \boxed{5*((4+7))}.", Grade("correct", "5*((4+7))")),
        ("4*5*7", Grade("incorrect", "4*5*7", "wrong_answer")),
        ("55", Grade("incorrect", "55", "wrong_answer")),  # it does not use the numbers
        ("I think 5*(4+7) works", Grade("incorrect", "I think 5*(4+7) works", "unreadable_answer")),
        ("", Grade("no_answer", None, "empty")),
        ("<answer> </answer>", Grade("no_answer", None, "empty")),
    ],
)
def test_an_answer_is_scored_by_its_dataset(answer, found):
    assert grade(COUNTDOWN, answer) == found


def test_no_answer_is_evaluated(tmp_path):  # B03
    mark = tmp_path / "mark"
    touch = f"__import__('pathlib').Path({str(mark)!r}).touch()"
    answers = [touch, f"[{touch}]", f"<answer>{touch} or 55</answer>", "(5*11).__class__", "exec(1)", "lambda: 22"]
    found = grade_all([(problem, answer) for problem in (COUNTDOWN, SPELL) for answer in answers])
    assert {one.status for one in found} == {"incorrect"}
    assert not mark.exists()


def test_a_list_of_characters_is_read_as_data():
    assert SPELL.gold == "EACADDDDB"
    assert grade(SPELL, "EACADDDDB") == Grade("correct", "EACADDDDB")
    assert grade(SPELL, str([*"EACADDDDB"])) == Grade("incorrect", str([*"EACADDDDB"]), "partly_right")  # score 0.1


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


def changed(problem, **entry):
    """`problem` with some fields of its entry, or of its own (`prompt`, `gold`), changed."""
    own = {name: entry.pop(name) for name in ("prompt", "gold") if name in entry}
    return replace(problem, entry=problem.entry | entry, **own)


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("bitwise_arithmetic", "problem"),
        ("simple_integration", "integrand"),
        ("intermediate_integration", "integrand"),
        ("propositional_logic", "premises"),
        ("rubiks_cube", "scramble_moves"),
    ],
)
def test_no_metadata_is_evaluated(tmp_path, name, field):
    mark = tmp_path / "mark"
    code = f"__import__('os').system('touch {mark}')"
    made, *_ = reasoning_gym.make_items([(name, 1, 0, {})])
    metadata = made.get("metadata", {}) | {field: code}
    entry = {"dataset": name, "seed": 1, "index": 0, "config": {}, "metadata": metadata}
    problem = Problem("p", "s", made.get("question", "?"), "reasoning_gym", made.get("answer", "1"), entry=entry)
    for answer in ("1", "x", code):
        assert grade(problem, answer).status == "grader_error"
    assert len(check_problems({"p": problem})) == 1 and not mark.exists()


@pytest.mark.parametrize("name", ["number_sorting", "polynomial_multiplication", "simple_integration"])
def test_no_gold_is_evaluated(tmp_path, name):
    mark = tmp_path / "mark"
    [problem] = reasoning_gym_problems(name, 1, 1).problems
    problem = changed(problem, gold=f"__import__('pathlib').Path({str(mark)!r}).touch()")
    assert grade(problem, "1") == Grade("grader_error", "1", "entry_differs")
    assert not mark.exists()


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("simple_integration", {"symbols": ["CODE"]}),
        ("intermediate_integration", {"symbols": ["CODE"]}),
        ("polynomial_multiplication", {"variables": ["CODE", "CODE", "CODE"]}),
        ("simple_equations", {"operators": ["CODE"], "operators_weights": [1]}),
        ("spell_backward", {"data_file": "../../../../../../etc/passwd"}),
        ("figlet_font", {"static_font": "/etc/passwd"}),
        ("composite", {"datasets": [{"name": "simple_integration", "weight": 1, "config": {"symbols": ["CODE"]}}]}),
        ("codeio", {}),
    ],
)
def test_no_config_is_evaluated(tmp_path, name, config):
    mark = tmp_path / "mark"
    config = json.loads(json.dumps(config).replace("CODE", f"x*__import__('os').system('touch {mark}')"))
    entry = {"dataset": name, "seed": 1, "index": 0, "config": config, "metadata": {}}
    for answer in ("1", "x"):
        assert grade(Problem("p", "s", "?", "reasoning_gym", "1", entry=entry), answer).status == "grader_error"
    [made] = reasoning_gym.make_items([(name, 1, 0, config)])
    assert made["failed"] in ("config", "dataset") and not mark.exists()


@pytest.mark.parametrize(
    "change",
    [
        {"index": 1},
        {"seed": 6},
        {"config": {}},
        {"gold": "5*(7 + 4)"},
        {"prompt": "Make 55."},
        {"metadata": {"numbers": [5, 11], "target": 55}},
    ],
)
def test_an_entry_that_the_package_does_not_make_again_is_not_graded(change):
    problem = changed(COUNTDOWN, **change)
    assert grade(problem, "5*11") == Grade("grader_error", "5*11", "entry_differs")
    [line] = check_problems({problem.id: problem})
    assert line.endswith(
        "does not make this problem of its dataset, seed, index and config again: entry_differs (grader `reasoning_gym`)"
    )


def test_a_prompt_may_say_more_than_the_question():
    problem = changed(COUNTDOWN, prompt=f"{COUNTDOWN.prompt}\n\nPut the answer between <answer> and </answer>.")
    assert grade(problem, "5*(7+4)").status == "correct"


@pytest.mark.parametrize(
    ("config", "reason"),
    [({"min_terms": 2, "max_digits": 10**9, "min_digits": 10**9}, "entry_time"), ({"size": 3}, "unreadable_entry")],
)
def test_an_entry_that_takes_too_long_to_make_is_no_wrong_answer(config, reason):
    entry = {"dataset": "chain_sum", "seed": 1, "index": 0, "config": config, "metadata": {}}
    problem = Problem("p", "s", "?", "reasoning_gym", "1", entry=entry)
    [found] = reasoning_gym.grade_many([(problem, "1")], limits=Limits(seconds=2, memory=4 << 30))
    assert found == Grade("grader_error", "1", reason)


def test_an_entry_is_made_once(monkeypatch):
    asked = []
    own = reasoning_gym.run_items
    monkeypatch.setattr(reasoning_gym, "run_items", lambda work, items, **more: asked.append(items) or own(work, items, **more))
    [problem] = reasoning_gym_problems("chain_sum", 1, 99).problems
    grade_all([(problem, str(answer)) for answer in range(40)])
    assert [item[0] for items in asked for item in items].count("make") == 1


def test_a_dataset_that_does_not_exist_is_a_grader_error_and_refused():
    problem = changed(replace(COUNTDOWN, id="p"), dataset="count_up")
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
        grade(COUNTDOWN, "5*(7+4)")
