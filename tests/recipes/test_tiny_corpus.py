import random
import re
from pathlib import Path
from statistics import mean

import pytest

import ablation
from ablation.problems.grade import check_problems
from ablation.problems.problem import load_problems
from ablation.recipes import tiny_corpus as corpus
from ablation.recipes.tiny_corpus import Chain, draw_chain, draw_document, draw_problems, running_values, think, write_pass

MIXED = Chain("mixed", (47, 86, -39, 58))
PRODUCT = Chain("product", (13, 27, -15, 32), factor=6)


class Steady(random.Random):
    """A generator whose `random()` is always the same, so that every yes or no is known."""

    def __init__(self, value: float) -> None:
        super().__init__(0)
        self.value = value

    def random(self) -> float:
        return self.value


def text(ids: list[int]) -> str:
    return "".join(corpus.VOCABULARY[token] for token in ids)


def test_a_chain_by_hand():
    assert (MIXED.prompt, MIXED.value) == ("47+86-39+58=", 152)
    assert running_values(MIXED) == [47, 133, 94, 152, 58, 19, 105, 152]
    assert (PRODUCT.prompt, PRODUCT.value) == ("13*6+27-15+32=", 122)
    assert running_values(PRODUCT) == [78, 105, 90, 122, 32, 17, 44, 122]


@pytest.mark.parametrize(
    ("chain", "backward", "written"),
    [
        (MIXED, False, "47+86=133-39=94+58=152"),
        (MIXED, True, "58-39=19+86=105+47=152"),
        (PRODUCT, False, "13*6=78+27=105-15=90+32=122"),
        (PRODUCT, True, "13*6=78;32-15=17+27=44+78=122"),
    ],
)
def test_a_pass_without_slips_by_hand(chain, backward, written):
    assert write_pass(Steady(0.999), chain, backward) == (written, chain.value)


def test_a_slip_is_carried_on():
    line, value = write_pass(Steady(0.0), MIXED, backward=False)  # every step slips
    steps = re.findall(r"([+-]\d+)=(\d+)", line)
    before = 47
    for term, result in steps:
        assert abs(int(result) - (before + int(term))) in (1, 2, 10)
        before = int(result)
    assert value == before and len(steps) == 3


def test_what_makes_a_step_hard():
    assert corpus.step_kind(47, 86) == "carry"
    assert corpus.step_kind(41, 18) == "plain"
    assert corpus.step_kind(133, -39) == "borrow"
    assert corpus.step_kind(139, -39) == "plain"


def test_slips_come_as_often_as_stated():
    rng = random.Random(1)
    slips = sum(corpus.careless(rng, 100, "borrow") != 100 for _ in range(20_000))
    assert slips / 20_000 == pytest.approx(corpus.STEP_ERRORS["borrow"], abs=0.006)


def test_passes_by_effort_and_direction():
    forward, backward = "47+86=133-39=94+58=152", "58-39=19+86=105+47=152"
    rng = Steady(0.2)  # no slip, never stuck, stops as soon as it may
    assert think(rng, MIXED, "low", 300) == (forward, 152)
    assert think(rng, MIXED, "medium", 300) == (f"{forward}\n{backward}", 152)
    assert think(rng, MIXED, "xhigh", 300) == (f"{forward}\n{backward}\n{forward}", 152)


def test_a_reasoner_that_never_stops_is_cut_without_an_answer():
    thinking, answer = think(Steady(0.999), MIXED, "low", 100)
    assert answer is None and len(thinking) >= 100
    lines = thinking.split("\n")
    assert lines[0] == lines[2] != lines[1] == lines[3]


def test_a_stuck_reasoner_repeats_one_line(monkeypatch):
    monkeypatch.setitem(corpus.HABITS, "low", corpus.Habit(passes=9, stop=0.0, give_up=0.0, stuck=1.0))
    thinking, answer = think(Steady(0.5), MIXED, "low", 100)
    assert set(thinking.split("\n")) == {"47+86=133-39=94+58=152"} and answer is None


def test_a_document_is_a_function_of_its_seed_and_index():
    first = [draw_document(3, "base", index, 256, 0.0) for index in range(50)]
    assert first[::-1] == [draw_document(3, "base", index, 256, 0.0) for index in reversed(range(50))]
    assert first != [draw_document(4, "base", index, 256, 0.0) for index in range(50)]
    assert first != [draw_document(3, "adapter", index, 256, 0.0) for index in range(50)]


def test_the_form_of_a_document():
    for index in range(200):
        document = draw_document(3, "adapter", index, 256, 1.0)
        assert len(document.ids) <= 256
        prompt, rest = text(document.ids[: document.prompt_length]), text(document.ids[document.prompt_length :])
        assert re.fullmatch(r"<\|user\|>\d\d(\*\d)?([+-]\d\d)+=<\|(low|medium|xhigh)\|><\|assistant\|><think>", prompt)
        if len(document.ids) < 256:
            *_, last = re.findall(r"=(\d+)", rest.split("</think>")[0])
            assert rest.endswith(f"</think>{last}<|end|>")  # the answer is what the last pass came to
        else:
            assert corpus.IDS[corpus.END] not in document.ids[:-1]


def test_the_effort_token_is_obeyed_as_often_as_asked():
    def lengths(obeyed: float) -> list[float]:
        by_effort: dict[int, list[int]] = {}
        for index in range(1500):
            document = draw_document(5, "any", index, 256, obeyed)
            by_effort.setdefault(document.ids[document.prompt_length - 3], []).append(len(document.ids) - document.prompt_length)
        return [mean(by_effort[corpus.IDS[token]]) for token in corpus.EFFORT_TOKENS]

    low, medium, xhigh = lengths(1.0)
    assert low * 1.5 < medium and medium * 1.3 < xhigh
    assert max(lengths(0.0)) < 1.25 * min(lengths(0.0))


def test_running_values_stay_in_range():
    rng = random.Random(2)
    for source in corpus.SOURCES * 100:
        chain = draw_chain(rng, source)
        assert chain.source == source and bool(chain.factor) == (source == "product")
        assert all(0 <= value <= corpus.LARGEST for value in running_values(chain))


def test_problems_are_different_and_right():
    problems = draw_problems(7, 60)
    assert len({problem.prompt for problem in problems}) == len({problem.id for problem in problems}) == 60
    assert [problem.source for problem in problems[:4]] == ["sum", "mixed", "product", "sum"]
    for problem in problems:
        assert re.fullmatch(r"[0-9+*-]+=", problem.prompt)
        assert str(eval(problem.prompt[:-1])) == problem.gold  # Python's own arithmetic; only digits and operators
    assert check_problems({problem.id: problem for problem in problems}) == []
    assert draw_problems(7, 30) == problems[:30]


def test_sets_of_phase_2_share_no_problem_and_are_the_shipped_files():
    sets = {"problems": draw_problems(corpus.SEED, 29)} | corpus.draw_evaluations(corpus.SEED, 29)
    assert {name: len(one) for name, one in sets.items()} == {
        "problems": 29,
        "held-out": 24,
        "never-used": 24,
        "selection": 18,
        "main": 24,
    }
    assert len({problem.prompt for one in sets.values() for problem in one}) == 29 + 24 + 24 + 18 + 24
    shipped = Path(ablation.__file__).parent / "assets" / "tiny-reasoner"
    for name, problems in sets.items():
        assert list(load_problems(shipped / f"{name}.jsonl").values()) == problems
        assert all(str(eval(problem.prompt[:-1])) == problem.gold for problem in problems)

    def terms(name):
        return {(one.source, len(re.split(r"[+-]", one.prompt))) for one in sets[name]}

    assert terms("held-out") <= {("sum", 5), ("mixed", 6), ("mixed", 7), ("product", 4)}
    assert terms("never-used") <= {("sum", 3), ("mixed", 4), ("mixed", 5), ("product", 2), ("product", 3)}
