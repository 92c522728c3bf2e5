"""500 answers to a question with options whose truth is known by construction: forms of one option, hedges, rejections, no answer.

Each answer is a form filled in with an option that was drawn first, so what it states rests on no reader. Half state one option; the
others state several, reject one, doubt, or say something else, and none of those is an answer.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

TEXTS = {"A": "meiosis", "B": "mitosis", "C": "no division at all", "D": "none of the above"}
PROMPT = "How does a skin cell divide?\n" + "\n".join(f"{name}. {text}" for name, text in TEXTS.items())

ONE = (
    "{x}", "({x})", "{x}.", "{x})", " {l}\n", "({l})", "**{x}**", "**{x}.** {tx}", "${x}$", r"$\text{{({x})}}$", r"\({x}\)", "{x}. {tx}", "({x}) {tx}",
    "{x}: {tx}", "{x} - {tx}.", r"\boxed{{{x}}}", r"\boxed{{({x})}}", r"\boxed{{\text{{{x}}}}}", r"\boxed{{\textbf{{({x})}}\ {tx}}}", r"\boxed{{{x} - {tx}}}",
    r"so $\boxed{{{x}}}$, not {y}.", r"\boxed{{{y}}}, no: \boxed{{{x}}}", r"\boxed{{{l}}}", r"\boxed{{\mathrm{{{x}}}}}", "Final answer: {x}", "**Answer:** {x}",
    "The answer is ({x}).", "The correct answer is {x}.", "The best option is {x}: {tx}.", "Answer: {x}) {tx}", "answer: {l}", "### Final Answer\n\n{x}",
    "({x}) because the nucleus is copied first", "{x}, since it keeps the number of chromosomes", "({y}) is incorrect. Final answer: {x}.",
    "{y} is wrong, so the answer is {x}.", "The answer must be {x}, not {y}.", "I first thought of ({y}).\nThe answer is ({x}).", "Option {x} is correct.",
    "The answer is {y}? No. Final answer: {x}", "({x}) is the best answer. ({y}) is not.", r"\boxed{{\text{{The answer is {x}}}}}",
    "The answer is {x}. A cell copies its chromosomes first.", "Answer: option ({x})", "<answer>{x}</answer>", "Answer：{x}", "答案是 {x}",
    "Answer: {x} (not {y})", "Answer: {x}. It is not the other one.",
)  # fmt: skip
NONE = (
    "({x}) or ({y})", "({x}) or ({y}) or ({z})", "{x}. {y}. {z}.", "{x}, {y}", "{x} and {y}", "{x}/{y}", "{x}{y}", "({x})({y})", "either {x} or {y}",
    "both ({x}) and ({y})", r"\boxed{{({x}) and ({y})}}", r"\boxed{{{x}, {y}}}", r"\boxed{{{x}{y}}}", r"\boxed{{{x}\text{{ or }}{y}}}", r"\boxed{{{x}/{y}}}",
    "The answer is {x} or {y}.", "The answer is ({x}). Or maybe ({y}).", "Answer: {x}, {y}, {z}", "The answer is {x}. The answer is {y}.", "({x}), or ({y})",
    "not {x}", "{x} is wrong", "({x}) is incorrect.", "The answer is not {x}.", "It is not ({x})", r"\boxed{{\text{{not {x}}}}}", r"\boxed{{{x} is wrong}}",
    "I don't think the answer is {x}.", "({x}) cannot be right.", "{x}: wrong\n{y}: wrong", "({x}) is correct if ({y}) is not", "The answer is {x}?",
    "{x} - {ty}", r"\boxed{{({x}) {ty}}}", "A cell divides by {tx}", "I think so", "Both", "all of the above", r"\boxed{{12}}", r"\boxed{{{x}", "", "{l}. {m}.",
    r"\boxed{{{x}}} or \boxed{{{y}}}", r"$\boxed{{{x}}}$ and $\boxed{{{y}}}$", r"\boxed{{{x}}}\text{{ or }}\boxed{{{y}}}", "Answer: {x}, wait",
    "Answer: {x}. Hmm, no.", "Answer: {x}. That is wrong.", "Answer: {x}. I take that back.", "<answer>{x}</answer> or <answer>{y}</answer>", "答案不是{x}",
    "答案是{x}或{y}", "Answer: {x}、{y}", "The answer could be {x}.", "Maybe {x}", "Final answer: unclear", "The answer is {x}. Final answer: not {x}",
)  # fmt: skip


@dataclass(frozen=True)
class Stated:
    form: str
    answer: str
    letter: str | None
    """The option that it states; None if that is not exactly one."""


def answers(seed: int = 20_261_201) -> list[Stated]:
    """All 500, the same for the same seed."""
    rng, made = random.Random(seed), []
    for forms, states in ((ONE, True), (NONE, False)):
        for place in range(250):
            form, (x, y, z) = forms[place % len(forms)], rng.sample("ABCD", 3)
            said = form.format(x=x, y=y, z=z, l=x.lower(), m=y.lower(), tx=TEXTS[x], ty=TEXTS[y])
            made.append(Stated(form, said, x if states else None))
    return made
