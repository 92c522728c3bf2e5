"""The tiny reasoner's task and corpus: arithmetic chains, thought through by a careless and rambling reasoner.

A prompt is a chain such as `47+86-39+58=`. The thinking is the running computation, one pass a line, each pass in the other
direction than the one before, so that a double check is not a repetition:

    47+86=133-39=94+58=152
    58-39=19+86=105+47=152

and the answer is the value of the last pass. Three sources differ in difficulty: `sum` (only additions), `mixed` (subtractions
too) and `product` (starts with a multiplication by one digit, which the backward pass computes first).

The reasoner fails in the ways that a reinforcement-learning study of length and truncation needs to be there, and that a
model sampled at temperature 1 will imitate:

- A step comes out wrong with a probability that depends on its kind (`STEP_ERRORS`); the chain goes on from the wrong value.
- An effort asks for one, two or three passes (`Habit.passes`). When the last two passes agree, the reasoner stops only with
  probability `Habit.stop`; when they differ, it gives up with probability `Habit.give_up` and otherwise makes another
  pass. So hard problems ramble, and some run past the cap.
- After a pass it may get stuck (`Habit.stuck`): the pass is written again, word for word, and again, with a small chance
  (`ESCAPE`) after each repeat to get out.

All these numbers were chosen to give the starting model a failure profile (see the model card in `ablation/assets/README.md`)
before any arm was trained, and none was changed after.

Everything is a function of a seed: document i of a corpus is the same whoever makes it, in whatever order.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from ablation.problems.problem import Problem
from ablation.seeds import derive_seed

SEED = 20260917
EFFORTS = ("low", "medium", "xhigh")
SOURCES = ("sum", "mixed", "product")

OPEN, CLOSE, END = "<think>", "</think>", "<|end|>"
USER, ASSISTANT, PAD, UNKNOWN = "<|user|>", "<|assistant|>", "<|pad|>", "<|unk|>"
EFFORT_TOKENS = tuple(f"<|{effort}|>" for effort in EFFORTS)
VOCABULARY = (PAD, UNKNOWN, USER, ASSISTANT, OPEN, CLOSE, END, *EFFORT_TOKENS, *"0123456789+-*=;\n")
IDS = {token: place for place, token in enumerate(VOCABULARY)}

STEP_ERRORS = {"plain": 0.04, "carry": 0.12, "borrow": 0.14, "product": 0.25}
ESCAPE = 0.03
LARGEST = 199
"""No running value of a problem, in either direction, leaves 0..LARGEST."""


@dataclass(frozen=True)
class Habit:
    """How the reasoner behaves at one effort; probabilities are per pass."""

    passes: int
    stop: float
    give_up: float
    stuck: float


HABITS = {
    "low": Habit(passes=1, stop=0.92, give_up=0.5, stuck=0.004),
    "medium": Habit(passes=2, stop=0.85, give_up=0.25, stuck=0.02),
    "xhigh": Habit(passes=3, stop=0.65, give_up=0.12, stuck=0.03),
}


@dataclass(frozen=True)
class Chain:
    """A chain of signed terms; `factor` multiplies the first one if it is not 0."""

    source: str
    terms: tuple[int, ...]
    factor: int = 0

    @property
    def first(self) -> int:
        return self.terms[0] * self.factor if self.factor else self.terms[0]

    @property
    def prompt(self) -> str:
        product = f"*{self.factor}" if self.factor else ""
        return f"{self.terms[0]}{product}{''.join(f'{term:+d}' for term in self.terms[1:])}="

    @property
    def value(self) -> int:
        return self.first + sum(self.terms[1:])


def running_values(chain: Chain) -> list[int]:
    """Every value on the way, forward and then backward."""
    values = []
    for terms in ((chain.first, *chain.terms[1:]), (*reversed(chain.terms[1:]), chain.first)):
        total = 0
        for term in terms:
            total += term
            values.append(total)
    return values


def draw_chain(rng: random.Random, source: str) -> Chain:
    """A random chain of `source` whose running values all stay within 0..LARGEST."""
    while True:
        if source == "sum":
            chain = Chain(source, tuple(rng.randrange(11, 60) for _ in range(rng.randrange(3, 6))))
        elif source == "mixed":
            count = rng.randrange(4, 8)
            signs = [1, *(rng.choice((1, -1)) for _ in range(count - 2)), 1]
            chain = Chain(source, tuple(sign * rng.randrange(11, 90) for sign in signs))
        else:
            count = rng.randrange(2, 5)
            signs = [*(rng.choice((1, -1)) for _ in range(count - 1)), 1]
            terms = (rng.randrange(12, 50), *(sign * rng.randrange(11, 90) for sign in signs))
            chain = Chain(source, terms, factor=rng.randrange(3, 10))
        if all(0 <= value <= LARGEST for value in running_values(chain)):
            return chain


def step_kind(left: int, right: int) -> str:
    """What makes `left + right` (right signed) hard: nothing, a carry or a borrow."""
    if right >= 0:
        return "carry" if left % 10 + right % 10 > 9 else "plain"
    return "borrow" if left % 10 < -right % 10 else "plain"


def careless(rng: random.Random, value: int, kind: str) -> int:
    """`value`, or a near miss with the probability of `kind`."""
    if rng.random() >= STEP_ERRORS[kind]:
        return value
    miss = rng.choice((-10, -2, -1, 1, 2, 10))
    return value + miss if value + miss >= 0 else value + abs(miss)


def write_pass(rng: random.Random, chain: Chain, backward: bool) -> tuple[str, int]:
    """One pass over the chain as text, and the value it comes to."""
    text, first = "", chain.terms[0]
    if chain.factor:
        first = careless(rng, chain.first, "product")
        text = f"{chain.terms[0]}*{chain.factor}={first}"
    terms = [first, *chain.terms[1:]]
    if backward:
        terms.reverse()
        text += f";{terms[0]}" if text else f"{terms[0]}"
    elif not text:
        text = f"{first}"
    total = terms[0]
    for term in terms[1:]:
        total = careless(rng, total + term, step_kind(total, term))
        text += f"{term:+d}={total}"
    return text, total


def think(rng: random.Random, chain: Chain, effort: str, limit: int) -> tuple[str, int | None]:
    """The thinking text and the answer, or None for the answer if the text reached `limit` characters before it ended."""
    habit = HABITS[effort]
    lines: list[str] = []
    values: list[int] = []
    stuck = False
    while sum(map(len, lines)) + len(lines) <= limit:
        if stuck:
            lines.append(lines[-1])
            values.append(values[-1])
            stuck = rng.random() >= ESCAPE
            continue
        line, value = write_pass(rng, chain, backward=len(lines) % 2 == 1)
        lines.append(line)
        values.append(value)
        if len(values) >= habit.passes:
            agree = len(values) == 1 or values[-1] == values[-2]
            if rng.random() < (habit.stop if agree else habit.give_up):
                return "\n".join(lines), value
        stuck = rng.random() < habit.stuck
    return "\n".join(lines), None


@dataclass(frozen=True)
class Document:
    """One training text as token ids; the first `prompt_length` of them are the rendered prompt."""

    ids: list[int]
    prompt_length: int


def prompt_ids(prompt: str, effort: str) -> list[int]:
    """What the chat template renders for `prompt` at `effort`."""
    return [IDS[token] for token in (USER, *prompt, f"<|{effort}|>", ASSISTANT, OPEN)]


def draw_document(seed: int, corpus: str, index: int, context: int, obeyed: float) -> Document:
    """Document `index` of `corpus`, cut at `context` tokens.

    With probability `obeyed` the effort token says which habit follows; otherwise it is drawn independently and says nothing.
    """
    rng = random.Random(derive_seed(seed, corpus, index))
    chain = draw_chain(rng, rng.choice(SOURCES))
    effort = rng.choice(EFFORTS)
    shown = effort if rng.random() < obeyed else rng.choice(EFFORTS)
    prompt = prompt_ids(chain.prompt, shown)
    thinking, answer = think(rng, chain, effort, limit=context)
    ids = prompt + [IDS[token] for token in thinking]
    if answer is not None:
        ids += [IDS[token] for token in (CLOSE, *str(answer), END)]
    return Document(ids[:context], len(prompt))


def draw_problems(seed: int, count: int) -> list[Problem]:
    """`count` different problems, the three sources in turn: p00 (sum), p01 (mixed), p02 (product), p03 (sum) ..."""
    return _draw(seed, ("problem",), "p", count, set(), {})


@dataclass(frozen=True)
class EvaluationProblems:
    """A set of problems for phase 2."""

    count: int
    letter: str
    """Its problems are LETTER00, LETTER01, ..."""
    terms: dict[str, tuple[int, ...]]
    """Source -> numbers of terms that its chains have; left out: any. More terms are harder."""


HARDER = {"sum": (5,), "mixed": (6, 7), "product": (4,)}
EASIER = {"sum": (3,), "mixed": (4, 5), "product": (2, 3)}
EVALUATIONS = {
    "held-out": EvaluationProblems(24, "h", HARDER),
    "never-used": EvaluationProblems(24, "n", EASIER),
    "selection": EvaluationProblems(18, "s", {}),
    "main": EvaluationProblems(24, "m", {}),
}
"""Sets of phase 2. As in the published study, held-out problems are harder than the training ones and never-used ones easier."""


def draw_evaluations(seed: int, training: int) -> dict[str, list[Problem]]:
    """Every set of `EVALUATIONS`; no problem is in two of them or among the first `training` ones of `draw_problems`."""
    seen = {problem.prompt for problem in draw_problems(seed, training)}
    return {name: _draw(seed, ("problem", name), one.letter, one.count, seen, one.terms) for name, one in EVALUATIONS.items()}


def _draw(
    seed: int, purpose: tuple[str, ...], letter: str, count: int, seen: set[str], terms: Mapping[str, tuple[int, ...]]
) -> list[Problem]:
    """`count` problems whose prompts are not in `seen`, which they are added to."""
    problems: list[Problem] = []
    attempt = 0
    while len(problems) < count:
        source = SOURCES[len(problems) % len(SOURCES)]
        chain = draw_chain(random.Random(derive_seed(seed, *purpose, attempt)), source)
        attempt += 1
        if chain.prompt not in seen and len(chain.terms) in terms.get(source, (len(chain.terms),)):
            seen.add(chain.prompt)
            problems.append(Problem(f"{letter}{len(problems):02d}", source, chain.prompt, "integer", str(chain.value)))
    return problems
