"""Every measure that a rule may name, one line each: what it is called, its unit, its range, and how it can be compared.

Rules, their words, the ranges of made-up figures and the reader of reported ones all come from here. How a measure is computed is
in `measures` and `training`; what it means is in `plans/README.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Where = Literal["answers", "agent", "safety", "update"]
"""Measured on every stage of answers, on turns of an agent, on answers to safety prompts, or at an update."""
End = float | Literal["rollouts", "cap", "tokens", "entropy", "kl"]


@dataclass(frozen=True)
class Sizes:
    """What ends of ranges depend on."""

    rollouts: float = math.inf
    """Of the stage; infinite where that is not known."""
    cap: int = 1
    """Tokens of a rollout at most."""
    top_logprobs: int = 1
    kl: bool = True
    """Whether an arm has a KL term."""

    def of(self, end: End) -> float:
        """The number that `end` stands for."""
        if not isinstance(end, str):
            return end
        return {
            "rollouts": self.rollouts,
            "cap": self.cap,
            "tokens": self.rollouts * self.cap,
            "entropy": max(math.log(self.top_logprobs), 1 / math.e),  # -p log p of a single token is largest at 1/e
            "kl": float(self.kl),
        }[end]


@dataclass(frozen=True)
class Measure:
    """One measure. Its name is its key in `ALL`."""

    words: str
    """As in `lost 3 or more {words} against the sweep`."""
    unit: str = ""
    """Behind a limit, with the blank before it."""
    where: Where = "answers"
    low: End = 0.0
    high: End = math.inf
    whole: bool = False
    """Only whole numbers."""
    count: bool = False
    """So many of the rollouts: it has a share of them."""
    ratio: bool = False
    """It can be compared by the ratio of subject to reference."""
    paired: bool = False
    """Its change has an interval: it is a mean or sum over rollouts that have a partner."""
    number: bool = True
    """A model has it by itself; False: it is of two models alone."""

    def range(self, sizes: Sizes) -> tuple[float, float]:
        """Lowest and highest number that a stage or an update can have."""
        low = sizes.of(self.low)
        return low if math.isfinite(low) or low < 0 else 0.0, sizes.of(self.high)


def _count(words: str, where: Where = "answers", *, paired: bool = False) -> Measure:
    return Measure(words, where=where, high="rollouts", whole=True, count=True, paired=paired)


def _share(words: str, where: Where = "update", high: End = 1.0) -> Measure:
    return Measure(words, where=where, high=high)


ALL: dict[str, Measure] = {
    "correct": _count("correct rollouts", paired=True),
    "clean": _count("clean rollouts", paired=True),
    "truncated": _count("truncated rollouts", paired=True),
    "looping": _count("looping rollouts", paired=True),
    "truncated_or_looping": _count("truncated or looping rollouts", paired=True),
    "no_answer": _count("rollouts without an answer", paired=True),
    "periodic": _count("periodic loops", paired=True),
    "strong": _count("strong loops", paired=True),
    "valid_tool_call": _count("turns with a valid tool call", "agent"),
    "invalid_tool_call": _count("turns with an invalid tool call", "agent"),
    "full_compliance": _count("full compliances with a harmful request", "safety"),
    "partial_compliance": _count("partial compliances with a harmful request", "safety"),
    "over_refusal": _count("over-refusals", "safety"),
    "injection_repeat": _count("answers that repeat an injected instruction", "safety"),
    "missing_answer": _count("missing answers", "safety"),
    "bad_plain": _count("bad answers to plain prompts", "safety"),
    "visible_cjk": _count("answers with visible CJK", "safety"),
    "unparsed": _count("answers that no rater could label", "safety"),
    "logprob": Measure("sampled-token logprob", " nats per token", low=-math.inf, high=0.0, paired=True),
    "top20_entropy": Measure("top-20 entropy", " nats", high="entropy", paired=True),
    "top20_mass": Measure("top-20 probability mass", high=1.0, paired=True),
    "cjk_share": Measure("CJK share of the thinking", high=1.0, ratio=True),
    "tokens_per_correct": Measure("tokens per correct answer", low=1.0, high="tokens", ratio=True),
    "clean_length": Measure("length of clean answers", high="cap", ratio=True),
    "jointly_correct_length": Measure("length of jointly correct answers", ratio=True, number=False),
    "agent_turn": Measure("thinking per agent turn", where="agent", ratio=True),
    "agent_tokens": Measure("thinking over all agent turns", where="agent", whole=True, ratio=True),
    "total_tokens": Measure("total tokens", " tokens", low="rollouts", high="tokens", whole=True),
    "correct_rate": Measure("share of correct rollouts", high=1.0, paired=True),
    "truncated_or_looping_share": _share("share of truncated or looping rollouts"),
    "nonfinite": Measure("number of losses, gradients or logprobs that are not finite", where="update", whole=True),
    "negative_share": _share("negative share of the absolute weight"),
    "truncated_share": _share("truncated rollouts' share of the absolute weight"),
    "kl_share": _share("KL term's share of the absolute weight", high="kl"),
    "mismatch_mean": Measure("mean absolute difference of trainer and sampler logprobs", " nats", "update"),
    "mismatch_p99": Measure("99th percentile of the absolute difference of trainer and sampler logprobs", " nats", "update"),
    "mismatch_outside": _share("share of tokens whose ratio of trainer to sampler is more than 10% off 1"),
    "mismatch_k3": Measure("KL divergence of trainer and sampler (k3)", " nats per token", "update"),
    "grad_norm": Measure("norm of the gradient", where="update"),
    "entropy": Measure("top-20 entropy of the weighted tokens under the trainer", " nats", "update", high="entropy"),
}
"""Name -> measure, in the order in which lists of them are printed."""


def _names(test: Callable[[Measure], bool]) -> tuple[str, ...]:
    return tuple(name for name, one in ALL.items() if test(one))


OF_STAGES = _names(lambda one: one.where != "update" and one.number)
"""What a rule can test the number of."""
COUNTS = _names(lambda one: one.count)
ANSWER_COUNTS = _names(lambda one: one.count and one.where == "answers")
SAFETY_COUNTS = _names(lambda one: one.where == "safety")
AGENT = _names(lambda one: one.where == "agent")
AGENT_COUNTS = _names(lambda one: one.count and one.where == "agent")
PAIRED = _names(lambda one: one.paired)
RATIOS = _names(lambda one: one.ratio)
OF_UPDATES = ("logprob", *_names(lambda one: one.where == "update"))
