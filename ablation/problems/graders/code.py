"""`code`: the answer's program is run in a sandbox, and what comes out is compared here, outside of it.

The program is the last complete fenced block of the visible answer that is marked `python` (or `py`, `python3`); if none is
marked so, the last complete one that is not marked at all. A fence is a line of three or more backticks or tildes, indented by
at most three spaces; a block that is never closed is not complete. No such block: no answer.

Kinds of tests (`graders.code_tests`):

- `function`: `entry_point` is called with each case's arguments, and the returned value compared by the rules of
  `sandbox.compare`.
- `stdin`: the program runs as a script for each case. It must end with status 0 and leave no process running. Output is
  compared as UTF-8 text, line by line, without the white space at line ends, the kind of line ends, and empty lines at the end.
- `check`: `check(candidate)`, which comes with the problem, runs in a second sandbox. Its `candidate` sends the arguments to
  the program and gets plain values back, copies, so that nothing of the program's own making, no object or type, ever reaches
  the check.

Expected values, and the check, never enter the sandbox of the program. It passes only by a value for every case, each asked for
with a random nonce that the answer must repeat; a status, a printed text or a message that nobody asked for counts for nothing.
After the first case that fails no other is run. Time is counted while the program runs: not the start of its sandbox.

The sandbox has a Python like the one that runs this, and its standard library alone.
"""

from __future__ import annotations

import json
import marshal
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from ablation.problems.graders.code_tests import CodeTests, read_tests
from ablation.problems.outcome import Grade
from ablation.problems.problem import Problem
from ablation.problems.sandbox.bubblewrap import choose
from ablation.problems.sandbox.compare import same, same_number
from ablation.problems.sandbox.failure import NoSandbox, SandboxError
from ablation.problems.sandbox.judges import MOST_BYTES, Judges
from ablation.problems.sandbox.limits import Limits
from ablation.problems.sandbox.process import Ended, Sandbox
from ablation.problems.sandbox.script import run_script
from ablation.problems.sandbox.values import decode

_FENCE = re.compile(r" {0,3}(`{3,}+|~{3,}+)([^`\n]*+)")
_NUMBER = re.compile(r"(?<![\w.])([-+]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][-+]?[0-9]++)?+)(?!\w)")
_MARKS = ("python", "py", "python3")
_SYNTAX = (b"SyntaxError", b"IndentationError", b"TabError")


def read_code(text: str) -> str | None:
    """The program in a visible answer, None if there is none (the rule is above)."""
    marked = unmarked = fence = None
    mark, lines = "", []
    for line in text.replace("\r\n", "\n").split("\n"):
        found = _FENCE.fullmatch(line.rstrip())
        if fence is None:
            if found:
                fence, lines = found[1], []
                mark = found[2].strip().split(" ")[0].split("{")[0].lower()
        elif found and found[1].startswith(fence) and not found[2].strip():
            block, fence = "\n".join(lines) + "\n", None
            if mark in _MARKS:
                marked = block
            elif not mark:
                unmarked = block
        else:
            lines.append(line)
    return marked if marked is not None else unmarked


def gold_answer(problem: Problem) -> str | None:
    """An answer with the problem's own solution, None if it has none."""
    solution = read_tests(problem.tests, problem.id).solution
    if solution is None:
        return None
    fence = "`" * (1 + max([2, *(len(run) for run in re.findall("`+", solution))]))
    return f"{fence}python\n{solution}\n{fence}\n"


def grade_many(pairs: Sequence[tuple[Problem, str]], workers: int = 1) -> list[Grade]:
    """Grade each in sandboxes of its own, up to `workers` at once.

    Raises:
        UsageError: there is no sandbox on this machine. One that fails later gives `grader_error` in the rows that it fails on.
    """
    choose()
    with Judges() as judges, ThreadPoolExecutor(max(1, workers)) as pool:
        return list(pool.map(lambda pair: _grade(read_tests(pair[0].tests, pair[0].id), pair[1], judges), pairs))


def grade_code(tests: CodeTests, answer: str) -> Grade:
    """Grade one visible answer. A `grader_error` says nothing about it: there is no sandbox, or it or the check failed."""
    with Judges() as judges:
        return _grade(tests, answer, judges)


def _grade(tests: CodeTests, answer: str, judges: Judges) -> Grade:
    code = read_code(answer)
    if code is None:
        return Grade("no_answer", None, "no_code" if answer.strip() else "empty")
    try:
        reason = _KINDS[tests.kind](tests, code, judges)
    except _Decided as error:
        reason = str(error)
    except NoSandbox:
        return Grade("grader_error", code, "no_sandbox")
    except BrokenCheck as error:
        return Grade("grader_error", code, str(error))
    except (SandboxError, OSError):
        return Grade("grader_error", code, "sandbox_failed")
    return Grade("correct", code) if reason is None else Grade("incorrect", code, reason)


class BrokenCheck(Exception):
    """The problem's own check failed before it had anything from the answer."""


class _Decided(Exception):
    """The reason is known, but the judge that found it is of no further use."""


class _Clock:
    """Time that an answer has left; it runs only while somebody waits for the answer."""

    def __init__(self, seconds: float) -> None:
        self.left = seconds

    def run(self, wait: Callable[[float], tuple[bytes, bytes]]) -> tuple[bytes, bytes]:
        began = time.monotonic()
        try:
            return wait(began + self.left)
        finally:
            self.left -= time.monotonic() - began


class _Program:
    """The answer's program, loaded in its sandbox."""

    def __init__(self, box: Sandbox, limits: Limits) -> None:
        self._box, self._clock, self._most = box, _Clock(limits.seconds), limits.output_kb << 10

    def load(self) -> None:
        kind, content = self._clock.run(lambda deadline: self._box.receive(deadline, self._most))
        if kind == b"M":
            raise Ended("no_function")
        if kind != b"L":
            raise Ended("syntax_error" if content in _SYNTAX else _failure(content))

    def call(self, call: bytes) -> bytes:
        """The value of a call, as JSON that is still to be read with care. Raises Ended with the reason if there is none."""

        def ask(deadline: float) -> tuple[bytes, bytes]:
            self._box.send(b"C", call, deadline)
            return self._box.receive(deadline, self._most)

        kind, content = self._clock.run(ask)
        if kind == b"V":
            return content
        raise Ended("not_a_plain_value" if kind == b"N" else _failure(content))


def _failure(error: bytes) -> str:
    return "memory_limit" if error == b"MemoryError" else "runtime_error"


def _sandbox(tests: CodeTests, code: str) -> Sandbox:
    return Sandbox(b"S", {"source": f"{tests.prelude}\n{code}", "entry_point": tests.entry_point}, tests.limits)


def _function(tests: CodeTests, code: str, judges: Judges) -> str | None:
    with _sandbox(tests, code) as box:
        box.ready()
        program = _Program(box, tests.limits)
        try:
            program.load()
            for case in tests.cases:
                kwargs = {name: decode(value) for name, value in case.kwargs.items()}
                value = program.call(marshal.dumps((decode(case.args), kwargs)))
                if not same(case.expected, _read(value), case.tolerance):
                    return "wrong_answer"
        except Ended as error:
            return error.reason
    return None


def _read(value: bytes):
    def refuse(constant: str):
        raise ValueError(constant)

    try:
        return json.loads(value, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise Ended("forged_result") from error


def _check(tests: CodeTests, code: str, judges: Judges) -> str | None:
    with _sandbox(tests, code) as box:
        box.ready()
        program = _Program(box, tests.limits)
        try:
            program.load()
        except Ended as error:
            return error.reason
        with judges.check(tests.check, tests.entry_point, tests.limits) as judge:
            return _verdict(program, judge, tests.limits.seconds)


def _verdict(program: _Program, judge: Sandbox, seconds: float) -> str | None:
    """Carry the check's calls to the program and the values back, until the check has decided."""
    clock, asked = _Clock(seconds), False
    while True:
        try:
            kind, content = clock.run(lambda deadline: judge.receive(deadline, MOST_BYTES))
        except Ended as error:
            if asked and error.reason in ("timeout", "memory_limit"):  # over what the answer returned
                raise _Decided(f"check_{error.reason}") from error
            raise BrokenCheck(f"check_{error.reason}") from error
        if kind == b"P" and asked:
            return None
        if kind == b"F" and asked:
            return "wrong_answer"
        if kind != b"C":
            raise BrokenCheck("check_exited" if kind == b"D" else "check_broken")
        asked = True
        value, reason = b"", None
        try:
            value = program.call(content)
        except Ended as error:
            reason = error.reason
        try:
            judge.reply(b"Q" if reason else b"V", value, time.monotonic() + seconds)
        except Ended as error:
            raise BrokenCheck(f"check_{error.reason}") from error
        if reason:
            return reason


def _stdin(tests: CodeTests, code: str, judges: Judges) -> str | None:
    left = tests.limits.seconds
    for case in tests.cases:
        ran = run_script(code.encode("utf-8", "surrogatepass"), case.stdin.encode(), tests.limits, left)
        if ran.failed:
            return ran.failed
        try:
            output = ran.output.decode("utf-8")
        except UnicodeDecodeError:
            return "wrong_answer"
        if not same_output(case.stdout, output, case.tolerance):
            return "wrong_answer"
        left -= ran.seconds
    return None


def same_output(expected: str, found: str, tolerance: float = 0.0) -> bool:
    """Whether a program printed what is expected. With a `tolerance` numbers that are expected with a point or an exponent may
    differ by as much as returned ones may (see `sandbox.compare`); all else is compared as it is written."""
    wanted, got = "\n".join(normal_output(expected)), "\n".join(normal_output(found))
    if wanted == got or not tolerance:
        return wanted == got
    texts, numbers = _NUMBER.split(wanted), _NUMBER.split(got)
    return len(texts) == len(numbers) and all(
        one == other
        or (place % 2 == 1 and any(mark in one for mark in ".eE") and same_number(float(one), float(other), tolerance))
        for place, (one, other) in enumerate(zip(texts, numbers, strict=True))
    )


def normal_output(text: str) -> list[str]:
    """The lines of an output as they are compared: without white space at their ends, and without empty lines at the end."""
    lines = [line.rstrip(" \t\v\f") for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
    while lines and not lines[-1]:
        del lines[-1]
    return lines


_KINDS = {"function": _function, "stdin": _stdin, "check": _check}
