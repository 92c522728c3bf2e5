import os
import shutil
import threading
import time

import pytest

from ablation.errors import UsageError
from ablation.problems.grade import check_problems
from ablation.problems.graders.code import gold_answer, grade_code, grade_many, normal_output, read_code, same_output
from ablation.problems.graders.code_tests import read_tests
from ablation.problems.problem import Problem, load_problems, problem_line
from ablation.problems.sandbox import bubblewrap
from tests.problems.sandbox.needs import check, fenced, function, grade, needs_sandbox, stdin

DOUBLE = function([[3], 6], [["ab"], "abab"])
SUM = stdin(["3 4\n", "7\n"])


def problem(tests: dict, name: str = "p") -> Problem:
    return Problem(name, "s", "Write f.", "code", "", tests=tests)


# extraction


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```python\na = 1\n```", "a = 1\n"),
        ("```\na = 1\n```", "a = 1\n"),
        ("```py\na = 1\n```\nand\n```python3\nb = 2\n```", "b = 2\n"),
        ("```python\na = 1\n```\nIt prints:\n```\n1\n```\n", "a = 1\n"),
        ("```python\na = 1\n```\n```text\n1\n```\n```json\n{}\n```", "a = 1\n"),
        ("```python\na = 1\n```\n```python\nb = ", "a = 1\n"),
        ("~~~python\na = '''\n```\n'''\n~~~", "a = '''\n```\n'''\n"),
        ("````python\n```\na\n```\n````", "```\na\n```\n"),
        ("  ``` Python title='x'\na = 1\n  ```", "a = 1\n"),
        ("```python\r\na = 1\r\n```\r\n", "a = 1\n"),
        ("```python\na = '\u2028\x0c'\n```", "a = '\u2028\x0c'\n"),
        ("```python\n```", "\n"),
        ("    ```python\n    a = 1\n    ```", None),
        ("```python\na = 1", None),
        ("```javascript\nlet a = 1\n```", None),
        ("a = 1", None),
        ("`a = 1`", None),
        ("", None),
    ],
)
def test_the_program_is_the_last_complete_block(text, code):
    assert read_code(text) == code


def test_no_block_is_no_answer():
    tests = read_tests(DOUBLE, "t")
    assert (grade_code(tests, "def f(x): return 2 * x").status, grade_code(tests, "f").reason) == ("no_answer", "no_code")
    assert grade_code(tests, "  ").reason == "empty"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a  b\n", ["a  b"]),
        ("a \t\r\nb\r\n\r\n", ["a", "b"]),
        ("a\rb", ["a", "b"]),
        ("\n\na", ["", "", "a"]),
        (" a", [" a"]),
        ("\n \n", []),
    ],
)
def test_output_as_it_is_compared(text, lines):
    assert normal_output(text) == lines


# problem files


def test_b06_a_problem_without_cases_is_refused_when_it_is_read(tmp_path):
    path = tmp_path / "problems.jsonl"
    path.write_text(problem_line(problem(DOUBLE, "good")) + "\n" + problem_line(problem(DOUBLE | {"cases": []}, "bad")) + "\n")
    with pytest.raises(UsageError) as error:
        load_problems(path)
    assert error.value.message == f"{path}:2: tests.cases: there is no case"


@needs_sandbox
def test_a_solution_that_fails_its_own_tests_is_named():
    good, bad = (
        problem(DOUBLE | {"solution": "def f(x): return 2 * x"}, "good"),
        problem(DOUBLE | {"solution": "def f(x): return x"}, "bad"),
    )
    assert check_problems({one.id: one for one in (good, bad, problem(DOUBLE, "none"))}) == [
        "problem `bad`: its solution does not pass its own tests: wrong_answer (grader `code`)"
    ]


# right and wrong answers


@needs_sandbox
@pytest.mark.parametrize(
    ("code", "status", "reason"),
    [
        ("def f(x): return 2 * x", "correct", None),
        ("f = lambda x: x + x", "correct", None),
        ("def f(x): return x", "incorrect", "wrong_answer"),
        ("def f(x): return 6", "incorrect", "wrong_answer"),
        ("def g(x): return 2 * x", "incorrect", "no_function"),
        ("f = 5", "incorrect", "no_function"),
        ("def f(x) return 2 * x", "incorrect", "syntax_error"),
        ("def f(x): return 2 * y", "incorrect", "runtime_error"),
        ("def f(): return 6", "incorrect", "runtime_error"),
        ("import numpy\ndef f(x): return 2 * x", "incorrect", "runtime_error"),
        ("def f(x):\n    print('6')", "incorrect", "wrong_answer"),
        ("def f(x): return 2 * x\nif __name__ == '__main__':\n    raise ValueError", "correct", None),
        ("from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\ndef f(x): return A(2 * x).x", "correct", None),
    ],
)
def test_function(code, status, reason):
    found = grade(DOUBLE, code)
    assert (found.status, found.reason, found.extracted) == (status, reason, code + "\n")


@needs_sandbox
def test_arguments_and_values_of_every_plain_kind():
    args = [
        {"$tuple": [1, {"$set": [2]}]},
        {"$bytes": "00ff"},
        {"$float": "inf"},
        {"$dict": [[1, None]]},
        {"$int": "0x10000000000000000"},
        [True, 1.5],
    ]
    tests = function(
        [args, {"$tuple": ["tuple", "set", "bytes", "float", "dict", "int", "list", "bool"]}], [args, {"$tuple": args}]
    )
    tests["cases"] = tests["cases"][:1]
    kinds = "def f(*a): return tuple(type(x).__name__ for x in (a[0], a[0][1], a[1], a[2], a[3], a[4], a[5], a[5][0]))"
    assert grade(tests, kinds).status == "correct"
    assert grade(function([args, {"$tuple": args}]), "def f(*a): return a").status == "correct"


@needs_sandbox
def test_named_arguments_and_a_tolerance():
    tests = function([[1.0], 0.3])
    tests["cases"][0] |= {"kwargs": {"b": 2}, "tolerance": 1e-9}
    assert grade(tests, "def f(a, b): return 0.1 * a + 0.1 * b").status == "correct"
    del tests["cases"][0]["tolerance"]
    assert grade(tests, "def f(a, b): return 0.1 * a + 0.1 * b").reason == "wrong_answer"


@pytest.mark.parametrize(
    ("expected", "found", "right"),
    [
        ("0.3\n", "0.30000000000000004\n", True),
        ("0.3", "0.31", False),
        ("mean 2.5, of 4", "mean 2.4999999999, of 4", True),
        ("mean 2.5, of 4", "mean 2.5, of 4.0000000001", False),  # 4 is no number with a point
        ("[0.1, -1e-3]", "[0.1000000000001, -0.001]", True),
        ("[0.1, -1e-3]", "[0.1, 0.001]", False),
        ("1000000.0", "1000000.0005", True),  # relative above 1
        ("0.5 0.5", "0.5", False),
        ("0.5  x", "0.5 x", False),
        ("0.5", "nan", False),
        ("1.5", "1e999", False),
        ("1.5", "1.5s", False),
    ],
)
def test_printed_numbers_within_a_tolerance(expected, found, right):
    assert same_output(expected, found, 1e-9) is right
    assert same_output(expected, expected, 0.0) and not same_output(expected, found, 0.0)


@needs_sandbox
def test_a_tolerance_for_what_is_printed():
    tests = stdin(["3\n", "0.9\n"])
    code = "print(0.3 * int(input()))"
    assert grade(tests, code).reason == "wrong_answer"  # 0.8999999999999999
    tests["cases"][0]["tolerance"] = 1e-9
    assert grade(tests, code).status == "correct"


@needs_sandbox
def test_large_integers_are_printed_and_returned():
    assert grade(stdin(["5000\n", f"{'1' + '0' * 5000}\n"]), "print(10 ** int(input()))").status == "correct"
    assert grade(function([[5000], 5001]), "def f(x): return len(str(10 ** x))").status == "correct"


@needs_sandbox
def test_code_of_the_prompt_comes_before_the_answer():
    assert grade(DOUBLE | {"prelude": "TWO = 2"}, "def f(x): return TWO * x").status == "correct"
    assert grade(DOUBLE, "def f(x): return TWO * x").reason == "runtime_error"


CHECK = """
def check(candidate):
    assert candidate(3) == 6
    assert abs(candidate(x=0.5) - 1) < 1e-9
    assert candidate([1]) == [1, 1]
    assert f(1) == 2
"""


@needs_sandbox
@pytest.mark.parametrize(
    ("code", "status", "reason"),
    [
        ("def f(x): return 2 * x", "correct", None),
        ("def f(x): return [1, 1] if x == [1] else 7", "incorrect", "wrong_answer"),
        ("def f(x): return None", "incorrect", "wrong_answer"),
        ("def f(x): return object()", "incorrect", "not_a_plain_value"),
        ("def f(x): raise ValueError", "incorrect", "runtime_error"),
        ("def g(x): return 2 * x", "incorrect", "no_function"),
    ],
)
def test_check(code, status, reason):
    found = grade(check(CHECK), code)
    assert (found.status, found.reason) == (status, reason)


@needs_sandbox
@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("def check(candidate): pass", "check_broken"),
        ("def check(candidate): assert 1 == 2", "check_broken"),
        ("def check(candidate): return missing", "check_broken"),
        ("import missing\ndef check(candidate): candidate(1)", "check_broken"),
        ("def check(candidate): candidate(object())", "check_broken"),
        ("import os\ndef check(candidate): os._exit(0)", "check_exited"),
        ("def check(candidate):\n    while True: pass", "check_timeout"),
    ],
)
def test_a_broken_check_is_the_graders_error(source, reason):
    found = grade(check(source, seconds=1), "def f(x): return 2 * x")
    assert (found.status, found.reason) == ("grader_error", reason)


# B01: the process ends with status 0 before anything was checked


@needs_sandbox
@pytest.mark.parametrize(
    "body",
    ["import sys; sys.exit(0)", "import os; os._exit(0)", "import os; print('PASSED', 'OK', flush=True); os._exit(0)"],
)
@pytest.mark.parametrize(
    "tests", [function([[3], 6]), check("def check(candidate):\n    assert candidate(3) == 6")], ids=["function", "check"]
)
def test_b01_exits_prove_nothing(tests, body, nothing_left):
    found = grade(tests, f"def f(x):\n    {body}")
    assert (found.status, found.reason) == ("incorrect", "runtime_error" if "sys.exit" in body else "exited")


# B03: looking for the expected output


@needs_sandbox
@pytest.mark.parametrize(
    "code",
    [
        "import sys\ndef f(x): return sys._getframe(1).f_locals['expected']",
        "def f(x): return int(open('/proc/self/cmdline').read().split('expected')[1])",
        "import os\ndef f(x): return int(open(os.listdir('.')[0]).read())",
    ],
    ids=["frame", "cmdline", "folder"],
)
def test_b03_expected_values_are_not_there(code, nothing_left):
    found = grade(function([[3], 918_273_645]), code)
    assert (found.status, found.reason) == ("incorrect", "runtime_error")


# B04: processes that stay


@needs_sandbox
@pytest.mark.parametrize(
    ("tests", "code", "reason"),
    [
        (
            SUM,
            "import subprocess, sys\nprint(sum(map(int, input().split())), flush=True)\n"
            "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])",
            "left_processes",
        ),
        (
            SUM,
            "import os, time\nprint(sum(map(int, input().split())), flush=True)\nfor _ in range(30):\n    if os.fork() == 0: time.sleep(600)",
            ("left_processes", "runtime_error"),
        ),
        (
            function([[3], 6]),
            "import os, time\ndef f(x):\n    for _ in range(30):\n        if os.fork() == 0: time.sleep(600)\n    return 6",
            (None, "runtime_error"),
        ),
    ],
    ids=["sleeper", "30 forks of a script", "30 forks of a function"],
)
def test_b04_nothing_stays_and_nobody_waits(tests, code, reason, nothing_left):
    grade(tests, "def f(x): pass")  # what a start takes here and now
    began = time.monotonic()
    grade(tests, "def f(x): pass")
    start = time.monotonic() - began
    limit = 2
    began = time.monotonic()
    found = grade(tests | {"limits": {"seconds": limit}}, code)
    assert time.monotonic() - began < limit + 1 + 3 * start
    assert found.reason in (reason if isinstance(reason, tuple) else (reason,))
    assert found.status == ("correct" if found.reason is None else "incorrect")


# B06: nothing expected, nothing checked


@needs_sandbox
@pytest.mark.parametrize("expected", [None, "", []])
def test_b06_an_error_is_no_empty_result(expected):
    tests = {"kind": "function", "entry_point": "solve", "cases": [{"args": [1], "expected": expected}]}
    found = grade(tests, "def solve(x): raise ValueError")
    assert (found.status, found.reason) == ("incorrect", "runtime_error")


@needs_sandbox
def test_b06_an_error_is_no_empty_output():
    tests = stdin(["1\n", ""], ["2\n", "2\n"])
    assert grade(tests, "raise ValueError").reason == "runtime_error"


# B07: a script is a script


@needs_sandbox
@pytest.mark.parametrize(
    "code",
    [
        "import sys\na, b = sys.stdin.buffer.read().split()\nsys.stdout.buffer.write(str(int(a) + int(b)).encode() + b'\\n')",
        "def main():\n    a, b = map(int, input().split())\n    print(a + b)\n\nif __name__ == '__main__':\n    main()",
        "numbers = []\ntry:\n    while True:\n        numbers += map(int, input().split())\nexcept EOFError:\n    print(sum(numbers))",
        "import sys\nsys.stdout.write(str(sum(map(int, input().split()))) + '\\r\\n  \\r\\n')",
        "print(sum(map(int, input().split())), end='')",
    ],
    ids=["buffer", "main guard", "until EOFError", "CRLF", "no newline"],
)
@pytest.mark.parametrize("given", ["3 4", "3 4\n"])
def test_b07_all_are_correct(code, given):
    assert grade(stdin([given, "7\n"]), code).status == "correct"


@needs_sandbox
def test_b07_inner_spaces_count():
    assert grade(stdin(["", "3 4\n"]), "print('3  4')").reason == "wrong_answer"
    assert grade(stdin(["", "3 4\n"]), "print('3 4  ')").status == "correct"


# B09: a failure of the grader is no score


@needs_sandbox
def test_b09_rows_that_lost_the_sandbox_have_no_score(monkeypatch, tmp_path):
    monkeypatch.delenv(bubblewrap.RISK_VARIABLE, raising=False)
    right, wrong = fenced("def f(x): return 2 * x"), fenced("def f(x): return x")
    rows = [(problem(DOUBLE), right), (problem(DOUBLE), wrong)]
    complete = grade_many(rows + rows)
    goes_away, runs = tmp_path / "bwrap", tmp_path / "runs"
    goes_away.write_text(
        f'#!/bin/sh\necho >> {runs}\nif [ $(/usr/bin/wc -l < {runs}) -ge 2 ]; then /bin/rm -f "$0"; fi\nexec {shutil.which("bwrap")} "$@"\n'
    )
    goes_away.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    half = grade_many(rows + rows)
    assert [row.status for row in half] == ["correct", "incorrect", "grader_error", "grader_error"]
    assert [row.reason for row in half] == [None, "wrong_answer", "no_sandbox", "no_sandbox"]
    monkeypatch.undo()
    assert half[:2] + grade_many(rows) == complete


@pytest.mark.parametrize("rows", [[], [(DOUBLE, "def f(x): return 2 * x")]])
def test_b09_without_any_sandbox_nothing_is_graded(monkeypatch, tmp_path, rows):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(bubblewrap.RISK_VARIABLE, raising=False)
    with pytest.raises(UsageError, match="bwrap") as error:
        grade_many([(problem(tests), fenced(code)) for tests, code in rows])
    assert "apt-get install bubblewrap" in error.value.hint


@needs_sandbox
def test_b09_a_sandbox_that_breaks_is_no_wrong_answer(monkeypatch, tmp_path):
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: Creating new namespace failed: Resource temporarily unavailable' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    for tests in (DOUBLE, SUM, check(CHECK)):
        assert (grade(tests, "pass").status, grade(tests, "pass").reason) == ("grader_error", "sandbox_failed")


# the whole


@needs_sandbox
def test_many_at_once_give_what_each_gives_in_order():
    rows = [
        (problem(function([[n], n * n]), f"p{n}"), fenced(f"def f(x): return {n * n if n % 3 else 'None'}")) for n in range(12)
    ]
    found = grade_many(rows, workers=4)
    assert [row.status for row in found] == ["incorrect" if n % 3 == 0 else "correct" for n in range(12)]
    assert found == grade_many(rows)


@needs_sandbox
def test_over_its_limit_of_cpu_time_is_a_timeout_too():
    """Several threads use it up before the wall time is over; the kernel then sends this signal."""
    assert grade(DOUBLE, "import os, signal\ndef f(x): os.kill(os.getpid(), signal.SIGXCPU)").reason == "timeout"


@needs_sandbox
def test_from_another_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(grade(DOUBLE, "def f(x): return 2 * x")))
    thread.start()
    thread.join()
    assert found[0].status == "correct"


@needs_sandbox
def test_gold_answer_is_the_problems_solution_whatever_is_in_it():
    tests = function([[3], 6]) | {"solution": 'def f(x):\n    """\n    ```\n    f(3)\n    ```\n    """\n    return 2 * x'}
    assert grade_many([(problem(tests), gold_answer(problem(tests)))])[0].status == "correct"
    assert gold_answer(problem(DOUBLE)) is None


def test_the_risk_accepted_the_same_rules_hold_without_a_sandbox(monkeypatch, tmp_path):
    """Limits of time and memory hold, too; only the walls are missing."""
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setenv(bubblewrap.RISK_VARIABLE, bubblewrap.RISK_WORDS)
    before = sorted(os.listdir("/proc/self/fd"))
    limited = {"limits": {"seconds": 1}}
    assert grade(DOUBLE, "def f(x): return 2 * x").status == "correct"
    assert grade(DOUBLE, "import os\ndef f(x): os._exit(0)").reason == "exited"
    assert grade(DOUBLE | limited, "def f(x):\n    while True: pass").reason == "timeout"
    assert grade(DOUBLE, "def f(x): return len(bytearray(10**11))").reason == "memory_limit"
    assert grade(DOUBLE, "import os\ndef f(x): return dict(os.environ)").reason == "wrong_answer"
    assert grade(SUM, "print(sum(map(int, input().split())))").status == "correct"
    assert grade(SUM, "while True: print('x' * 1000)").reason == "output_limit"
    assert grade(SUM | limited, "import time\ntime.sleep(60)").reason == "timeout"
    assert grade(check(CHECK), "def f(x): return 2 * x").status == "correct"
    assert sorted(os.listdir("/proc/self/fd")) == before
