"""For tests that run code: they need a sandbox, and where ABLATION_TESTS_NEED_SANDBOX is set (.ci/run) they are never skipped."""

import os
import textwrap

import pytest

from ablation.problems.graders.code import grade_code
from ablation.problems.graders.code_tests import read_tests
from ablation.problems.sandbox.available import sandbox_available

AVAILABLE, WHY = sandbox_available()
needs_sandbox = pytest.mark.skipif(
    not AVAILABLE and not os.environ.get("ABLATION_TESTS_NEED_SANDBOX"), reason=f"no sandbox here: {WHY}"
)


def fenced(code: str) -> str:
    return f"Here it is.\n\n```python\n{textwrap.dedent(code).strip()}\n```\n"


def grade(tests: dict, code: str):
    return grade_code(read_tests(tests, "t"), fenced(code))


def function(*cases, seconds: float = 10, **limits) -> dict:
    """Tests that call f; a case is ([args], expected)."""
    return {
        "kind": "function",
        "entry_point": "f",
        "cases": [{"args": args, "expected": expected} for args, expected in cases],
        "limits": {"seconds": seconds, **limits},
    }


def stdin(*cases, seconds: float = 10, **limits) -> dict:
    return {
        "kind": "stdin",
        "cases": [{"stdin": given, "stdout": out} for given, out in cases],
        "limits": {"seconds": seconds, **limits},
    }


def check(source: str, seconds: float = 10, **more) -> dict:
    return {"kind": "check", "entry_point": "f", "check": textwrap.dedent(source), "limits": {"seconds": seconds}, **more}
