"""The corpus: right arithmetic unless a slip is drawn, more checks with more effort, a known share of stuck solutions."""

import re
from itertools import islice
from random import Random

import pytest

from ablation.recipes import smollm2_traces as traces
from ablation.recipes.smollm2_problems import CORPUS_SEED, GENERATORS, Question, questions

pytest.importorskip("reasoning_gym")

SUM = Question("chain_sum", "", "13", {"expression": "15 - 66 + 98 - 34"})
LEGS = Question("leg_counting", "", "76", {"animals": {"duck": 5, "jellyfish": 6, "cockroach": 11}})
EQUATION = Question("simple_equations", "", "5", {"equation": "11*n - 16 = 39", "variable": "n"})


@pytest.fixture(scope="module")
def sample():
    return {source: list(islice(questions(source, CORPUS_SEED), 150)) for source in GENERATORS}


@pytest.fixture
def careful(monkeypatch):
    monkeypatch.setattr(traces, "SLIP", 0.0)
    monkeypatch.setattr(traces, "STUCK", dict.fromkeys(traces.STUCK, 0.0))


def calculations(thinking: str) -> list[tuple[int, int]]:
    """(what a line works out, what it says the result is), for every line that has numbers only on one side."""
    found = []
    for line in thinking.splitlines():
        if "=" in line:
            left, said = line.rsplit("=", 1)
            left = re.sub(r"^.*[a-z]=", "", left)
            assert re.fullmatch(r"[-+*/0-9]+", left), line
            found.append((eval(re.sub(r"(?<=\d)-(?=-)", "- ", left)), int(said)))
    return found


@pytest.mark.parametrize(
    ("question", "thinking"),
    [
        (SUM, "15-66=-51\n-51+98=47\n47-34=13\nCheck:\n15-34=-19\n-19+98=79\n79-66=13\n"),
        (LEGS, "5*2=10\n6*0=0\n11*6=66\n10+0=10\n10+66=76\nCheck:\n11*6=66\n6*0=0\n5*2=10\n66+0=66\n66+10=76\n"),
        (EQUATION, "11*n=39+16=55\nn=55/11=5\nCheck:\n39+16=55\n55/11=5\n"),
    ],
)
def test_a_careful_solution_with_one_check(careful, question, thinking):
    assert traces.make_trace(question, "medium", Random(0)) == traces.Trace(thinking, question.gold)


def test_careful_solutions_are_right_line_by_line(careful, sample):
    for source, items in sample.items():
        for number, question in enumerate(items):
            for effort, checks in traces.CHECKS.items():
                trace = traces.make_trace(question, effort, Random(number))
                assert trace.answer == question.gold, (source, question.text)
                lines = calculations(trace.thinking)
                assert all(value == said for value, said in lines), trace.thinking
                assert len(lines) % (checks + 1) == 0


def test_slips_come_at_the_stated_rate_and_are_caught_by_checks(monkeypatch, sample):
    monkeypatch.setattr(traces, "STUCK", dict.fromkeys(traces.STUCK, 0.0))
    monkeypatch.setattr(traces, "SLIP", 0.1)
    wrong_lines = lines = 0
    right = dict.fromkeys(traces.CHECKS, 0)
    items = [question for items in sample.values() for question in items]
    for number, question in enumerate(items):
        for effort in traces.CHECKS:
            trace = traces.make_trace(question, effort, Random(number))
            right[effort] += trace.answer == question.gold
            if effort == "low":
                found = calculations(trace.thinking)
                lines += len(found)
                wrong_lines += sum(abs(value - said) > 0.5 for value, said in found)
    assert 0.08 < wrong_lines / lines < 0.12
    assert right["low"] < 0.85 * len(items) < 0.94 * len(items) < right["medium"]


def test_more_effort_is_longer(sample):
    for items in sample.values():
        lengths = [
            sum(len(traces.make_trace(question, effort, Random(number), 0).thinking) for number, question in enumerate(items))
            for effort in ("low", "medium", "xhigh")
        ]
        assert 1.5 * lengths[0] < lengths[1] < lengths[2] / 1.2


def test_stuck_solutions_repeat_one_block_and_have_no_answer(sample):
    stuck = total = 0
    for number, question in enumerate(question for items in sample.values() for question in items):
        trace = traces.make_trace(question, "xhigh", Random(number))
        total += 1
        if trace.answer is None:
            stuck += 1
            _, *blocks = re.split(r"(?:Check|Wait\. Again):\n", trace.thinking)
            assert len(set(blocks)) == 1
            assert len(blocks) >= 3
            assert len(trace.thinking) > 2000
    assert 0.15 < stuck / total < 0.25


def test_the_same_randomness_gives_the_same_solution(sample):
    question = sample["chain_sum"][0]
    made = {traces.make_trace(question, "xhigh", Random(7)) for _ in range(3)}
    assert len(made) == 1
    assert len({traces.make_trace(question, "xhigh", Random(seed)) for seed in range(20)}) > 1


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("18 - 10*o = -142", (-10, 18, -142)),
        ("11*n - 16 = 39", (11, -16, 39)),
        ("x + 12 = 47", (1, 12, 47)),
        ("7 - y = 2", (-1, 7, 2)),
        ("-3*a - 4 = -10", (-3, -4, -10)),
        ("5*z = 40", (5, 0, 40)),
    ],
)
def test_reading_an_equation(text, numbers):
    assert traces.equation(Question("simple_equations", "", "", {"equation": text})) == numbers
