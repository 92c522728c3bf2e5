import pytest

from ablation.errors import UsageError
from ablation.problems.graders.code_tests import CodeTests, FunctionCase, StdinCase, read_tests
from ablation.problems.sandbox.limits import Limits

FUNCTION = {"kind": "function", "entry_point": "f", "cases": [{"args": [1], "expected": 2}]}
STDIN = {"kind": "stdin", "cases": [{"stdin": "1\n", "stdout": "2\n"}]}
CHECK = {"kind": "check", "entry_point": "f", "check": "def check(candidate): assert candidate(1) == 2"}


def test_what_is_read():
    assert read_tests(FUNCTION, "t") == CodeTests("function", "f", (FunctionCase([1], {}, 2, 0.0),))
    assert read_tests(STDIN, "t") == CodeTests("stdin", cases=(StdinCase("1\n", "2\n"),))
    more = {"prelude": "import math", "solution": "def f(x): return 2", "limits": {"seconds": 3}}
    read = read_tests(CHECK | more, "t")
    assert (read.check, read.prelude, read.solution, read.limits) == (
        CHECK["check"],
        "import math",
        more["solution"],
        Limits(seconds=3.0),
    )


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([], "t: must be an object"),
        ({}, "t.kind: found None"),
        ({"kind": "Function"}, "t.kind: found 'Function'"),
        (FUNCTION | {"case": []}, "t: unknown field `case`"),
        (STDIN | {"entry_point": "f"}, "t: unknown field `entry_point`"),
        ({"kind": "function", "cases": FUNCTION["cases"]}, "t.entry_point: is missing"),
        ({"kind": "check", "entry_point": "f"}, "t.check: is missing"),
        (FUNCTION | {"entry_point": "f()"}, "t.entry_point: `f()` is not a name"),
        (FUNCTION | {"entry_point": "def"}, "t.entry_point: `def` is not a name"),
        (FUNCTION | {"entry_point": 1}, "t.entry_point: must be a text"),
        (FUNCTION | {"cases": []}, "t.cases: there is no case"),
        (STDIN | {"cases": []}, "t.cases: there is no case"),
        (FUNCTION | {"cases": {}}, "t.cases: there is no case"),
        (FUNCTION | {"cases": [[1, 2]]}, "t.cases[0]: must be an object"),
        (FUNCTION | {"cases": [*FUNCTION["cases"], {"args": [1]}]}, "t.cases[1].expected: is missing"),
        (FUNCTION | {"cases": [{"args": [1], "expected": 2, "want": 3}]}, "t.cases[0].want: is unknown"),
        (FUNCTION | {"cases": [{"args": 1, "expected": 2}]}, "t.cases[0].args: must be a list"),
        (
            FUNCTION | {"cases": [{"args": [], "kwargs": {"a b": 1}, "expected": 2}]},
            "t.cases[0].kwargs: must be an object of names and values",
        ),
        (FUNCTION | {"cases": [{"args": [], "expected": 2, "tolerance": -1}]}, "t.cases[0].tolerance: found -1"),
        (FUNCTION | {"cases": [{"args": [], "expected": 2, "tolerance": True}]}, "t.cases[0].tolerance: found True"),
        (FUNCTION | {"cases": [{"args": [{"$eval": "1"}], "expected": 2}]}, "t.cases[0].args: $eval is not such a value"),
        (FUNCTION | {"cases": [{"args": [], "expected": {"$set": [[1]]}}]}, "t.cases[0].expected: $set: unhashable type: 'list'"),
        (STDIN | {"cases": [{"stdin": 1, "stdout": "2"}]}, "t.cases[0].stdin: must be a text"),
        (STDIN | {"cases": [{"stdin": "1", "stdout": " \n"}]}, "t.cases: no case expects any output"),
        (CHECK | {"check": "def test(candidate): pass"}, "t.check: defines no function `check`"),
        (CHECK | {"limits": {"hours": 1}}, "t.limits: unknown limit `hours`"),
    ],
)
def test_errors_name_the_field(values, said):
    with pytest.raises(UsageError) as error:
        read_tests(values, "t")
    assert error.value.message == said


@pytest.mark.parametrize("name", ["check", "prelude"])
def test_code_that_is_no_python_is_refused_before_it_runs(name):
    with pytest.raises(UsageError, match=rf"t\.{name}: is not Python: .*line 1"):
        read_tests(CHECK | {name: "def check(:"}, "t")


def test_reading_runs_no_code(tmp_path):
    made = tmp_path / "made"
    read_tests(
        CHECK | {"check": f"open({str(made)!r}, 'w')\ndef check(candidate): pass", "prelude": f"open({str(made)!r}, 'w')"}, "t"
    )
    assert not made.exists()
