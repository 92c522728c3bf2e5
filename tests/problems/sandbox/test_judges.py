import marshal
import time

import pytest

from ablation.problems.sandbox.judges import MOST_BYTES, Judges
from ablation.problems.sandbox.limits import Limits
from ablation.problems.sandbox.memory import processes_of
from ablation.problems.sandbox.process import Ended

from .needs import needs_sandbox

pytestmark = needs_sandbox
CHECK = "seen = []\ndef check(candidate):\n    seen.append(candidate(len(seen), key={1}))\n    assert seen == [5] and f(0) == 6"


def soon() -> float:
    return time.monotonic() + 60


def receive(judge):
    kind, content = judge.receive(soon(), MOST_BYTES)
    return kind, marshal.loads(content) if kind == b"C" else content


def test_a_check_asks_for_values_and_decides():
    with Judges() as judges, judges.check(CHECK, "f", Limits()) as judge:
        assert receive(judge) == (b"C", ([0], {"key": {1}}))
        judge.reply(b"V", b"5", soon())
        assert receive(judge) == (b"C", ([0], {}))
        judge.reply(b"V", b"6", soon())
        assert receive(judge) == (b"P", b"")


def test_the_next_check_has_the_same_sandbox_and_a_fresh_process():
    namespaces = []
    with Judges() as judges:
        for value in (b"5", b"5", b"4"):
            with judges.check(CHECK, "f", Limits()) as judge:
                assert receive(judge) == (b"C", ([0], {"key": {1}}))  # `seen` is empty again
                judge.reply(b"V", value, soon())
                if value == b"5":
                    receive(judge)
                    judge.reply(b"V", b"6", soon())
                assert judge.receive(soon(), MOST_BYTES)[0] == (b"P" if value == b"5" else b"F")
            namespaces.append(judge._namespace)
        assert len(set(namespaces)) == 1
        assert processes_of(namespaces[0])
    assert processes_of(namespaces[0]) == []


def test_a_check_that_gets_no_value_makes_way_for_the_next():
    with Judges() as judges:
        for _ in range(2):
            with judges.check(CHECK, "f", Limits()) as judge:
                assert receive(judge)[0] == b"C"
                judge.reply(b"Q", b"", soon())
            namespace = judge._namespace
        with judges.check("def check(candidate): missing", "f", Limits()) as judge:
            assert receive(judge) == (b"E", b"NameError")
        assert judge._namespace == namespace


def test_after_an_error_it_is_not_used_again():
    with Judges() as judges:
        with (
            pytest.raises(Ended, match="timeout"),
            judges.check("def check(candidate):\n    while True: pass", "f", Limits()) as judge,
        ):
            judge.receive(time.monotonic() + 0.3, MOST_BYTES)
        first = judge
        assert processes_of(first._namespace) == []
        with judges.check("import os\ndef check(candidate): os._exit(0)", "f", Limits()) as judge:
            assert receive(judge) == (b"D", b"")
        assert judge is not first  # the kernel may give the number of the namespace again


def test_a_check_has_the_problems_limits():
    with Judges() as judges:
        with judges.check("def check(candidate): bytearray(10**9)", "f", Limits(memory_mb=128)) as judge:
            assert receive(judge) == (b"E", b"MemoryError")
        with judges.check("def check(candidate):\n    while True: pass", "f", Limits(seconds=1)) as judge:
            assert receive(judge) == (b"D", b"")  # out of processor time
