from ablation.problems.check import check_files
from ablation.problems.problem import Problem
from ablation.problems.sets import write_problems


def problem(name: str, prompt: str, grader: str, gold: str, **more) -> Problem:
    return Problem(name, "s", prompt, grader, gold, **more)


def code(name: str, prompt: str, solution: str | None) -> Problem:
    tests = {"kind": "function", "entry_point": "double", "cases": [{"args": [3], "expected": 6}]}
    return Problem(name, "made", prompt, "code", "", tests=tests | ({"solution": solution} if solution else {}))


def test_good_files_are_counted_by_source_and_grader(tmp_path):
    path = tmp_path / "good.jsonl"
    golds = [("integer", "1,000"), ("exact", "yes"), ("choice", "B"), ("math", r"\frac{1}{2}"), ("math", r"\sqrt{2}")]
    problems = [problem(f"p{place}", f"{'abcde'[place]}?", *gold) for place, gold in enumerate(golds)]
    problems += [code("c1", "Double.", "def double(x):\n    return 2 * x"), code("c2", "Twice.", None)]
    write_problems(path, problems)
    found = check_files([path])
    assert found.good and found.problems == {path: 7}
    assert dict(found.counts) == {
        ("s", "integer"): 1,
        ("s", "exact"): 1,
        ("s", "choice"): 1,
        ("s", "math"): 2,
        ("made", "code"): 2,
    }
    assert found.unchecked == [f"{path}: problem `c2`"]
    assert found.near == 0


def test_every_gold_that_fails_is_named(tmp_path):
    path = tmp_path / "bad.jsonl"
    write_problems(
        path,
        [
            problem("half", "a?", "math", "½"),
            problem("figure", "b?", "math", r"\text{see figure}"),
            problem("good", "c?", "math", "1"),
            problem("empty", "d?", "math", ""),
            code("double", "Double.", "def double(x):\n    return 3 * x"),
        ],
    )
    found = check_files([path])
    assert not found.good and len(found.failed) == 4
    assert found.failed[0] == f"{path}: problem `half`: gold `½` does not grade as correct against itself (grader `math`)"
    assert found.failed[3] == f"{path}: problem `double`: its solution does not pass its own tests: wrong_answer (grader `code`)"


def test_one_text_under_two_ids_is_found_across_files(tmp_path):
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    write_problems(one, [problem("a", "What is 3 + 4?", "integer", "7"), problem("b", "What is 5 + 4?", "integer", "9")])
    write_problems(two, [problem("z", "  what IS 3 + 4?\n", "integer", "7")])
    assert check_files([one]).good and check_files([one]).near == 1
    found = check_files([one, two])
    assert not found.good
    assert found.repeated == [f"{two}: problem `z` has the text of {one}: problem `a`"]
