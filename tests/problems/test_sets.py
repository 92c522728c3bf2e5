import json

import pytest

from ablation.errors import UsageError
from ablation.problems.grade import check_problems
from ablation.problems.problem import Problem, load_problems
from ablation.problems.sets import HubColumns, hub_problems, reasoning_gym_problems, write_problems


def test_a_generators_problems_are_the_same_each_time_and_readable(tmp_path):
    made = reasoning_gym_problems("chain_sum", 12, 7)
    assert made == reasoning_gym_problems("chain_sum", 12, 7)
    assert made.problems != reasoning_gym_problems("chain_sum", 12, 8).problems
    path = tmp_path / "set.jsonl"
    write_problems(path, made.problems)
    problems = load_problems(path)
    assert list(problems.values()) == made.problems
    assert list(problems)[:2] == ["chain_sum-7-0", "chain_sum-7-1"]
    for problem in made.problems:  # the gold, worked out here
        expression = problem.prompt.partition(":")[2].rstrip(" =")
        assert sum(int(term) for term in expression.replace("- ", "-").replace("+ ", "+").split()) == int(problem.gold)
    assert check_problems(problems) == []


def test_settings_reach_the_generator_and_the_entry():
    [problem] = reasoning_gym_problems("chain_sum", 1, 3, {"min_terms": 6, "max_terms": 6}).problems
    assert sum(sign in "+-" for sign in problem.prompt.split()) == 5
    assert problem.entry["config"] == {"min_terms": 6, "max_terms": 6}
    assert (problem.entry["dataset"], problem.entry["seed"], problem.entry["index"]) == ("chain_sum", 3, 0)


def test_repeated_texts_and_items_without_a_gold_are_passed_over():
    tiny = reasoning_gym_problems("chain_sum", 30, 5, {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1})
    assert len({problem.prompt for problem in tiny.problems}) == len(tiny.problems) == 30
    last = tiny.problems[-1].entry["index"]
    assert tiny.repeated == last + 1 - 30 > 0
    integrals = reasoning_gym_problems("intermediate_integration", 8, 3)
    assert integrals.refused == 2 and not any("Integral" in problem.gold for problem in integrals.problems)


@pytest.mark.parametrize(
    ("name", "config", "said"),
    [
        ("chain_sums", {}, "no dataset `chain_sums`; did you mean `chain_sum`?"),
        ("chain_sum", {"terms": 3}, "unexpected keyword argument 'terms'"),
        ("chain_sum", {"min_terms": 0}, "reasoning-gym chain_sum: min_terms must be positive"),
        ("chain_sum", {"min_terms": 1.5, "max_terms": 2.5}, "reasoning-gym chain_sum: could not make item 0: ValueError: "),
        ("rubiks_cube", {}, "of 50 items 0 repeat another and 50 have no gold that can be graded"),
    ],
)
def test_what_cannot_be_made_is_one_clear_error(name, config, said):
    with pytest.raises(UsageError) as caught:
        reasoning_gym_problems(name, 5, 1, config)
    assert said in caught.value.message and caught.value.hint


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "school math"
    folder.mkdir()
    rows = [{"question": "1+1?", "answer": "One and one. #### 2"}, {"question": "2*600?", "answer": "So 1200\n#### 1,200"}]
    (folder / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_a_data_set_becomes_problems(folder):
    problems = hub_problems(str(folder), "test", "math", HubColumns("question", "answer", gold_after="####"))
    assert [(one.id, one.source, one.prompt, one.gold) for one in problems] == [
        ("school-math-test-0", "school-math", "1+1?", "2"),
        ("school-math-test-1", "school-math", "2*600?", "1,200"),
    ]
    assert check_problems({one.id: one for one in problems}) == []


def test_a_data_set_that_is_not_there_and_a_column_that_is_not_there(folder):
    with pytest.raises(UsageError, match="row 0: column `solution` is missing"):
        hub_problems(str(folder), "test", "math", HubColumns("question", "solution"))
    with pytest.raises(UsageError, match="could not be loaded") as caught:
        hub_problems(str(folder / "none"), "test", "math", HubColumns("question", "answer"))
    assert "Is the hub in reach" in caught.value.hint


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"id": "a b"}, "set.jsonl:2: id: `a b` is not an id"),
        ({"id": "p1"}, "set.jsonl:2: id: `p1` was used before, in line 1"),
        ({"prompt": " "}, "set.jsonl:2: prompt: is empty"),
        ({"gold": "\ud800"}, "set.jsonl:2: gold: holds half of a character"),
    ],
)
def test_a_set_that_could_not_be_read_again_is_not_written(tmp_path, change, said):
    good = {"source": "s", "prompt": "?", "grader": "exact", "gold": "1"}
    with pytest.raises(UsageError, match=said):
        write_problems(tmp_path / "set.jsonl", [Problem("p1", **good), Problem(**{"id": "p2"} | good | change)])
    assert list(tmp_path.iterdir()) == []
