"""A small made-up update that every arm can be worked on by hand, and the arithmetic for one of its rollouts.

Three cells with three rollouts each: short, long and truncated; clean, looping and wrong; and three wrong ones that teach
nothing. Lengths and rewards are chosen so that means are round. Only an arm with a KL anchor or a clip looks at the made-up
logprobs, and only a weighting by entropy at the made-up entropies.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ablation.plan.arms import Arm, Reward
from ablation.plan.words import number
from ablation.report.arm_words import arm_formula
from ablation.training.audit import SUMS, audit_weights
from ablation.training.rewards import rewards
from ablation.training.weightings.high_entropy import threshold
from ablation.training.weightings.rollouts import Rollouts
from ablation.training.weights import Logprobs, RolloutBatch, Weights, count_rollouts, token_weights

S0, CAP = 100.0, 200
"""The scale and the cap of the made-up update, tokens."""
ANSWER, FAR = 10, 5
"""Tokens of a visible answer, its end token too; first tokens of a rollout whose ratio is not 1."""
REFERENCE = {"p1@low": 28.5, "p2@low": 117.0}
"""Cell -> mean clean thinking length in the sweep; the third cell has no clean rollout there."""


@dataclass(frozen=True)
class Made:
    """One made-up rollout."""

    cell: str
    what: str
    thinking: int
    clean: bool = False
    looping: bool = False
    truncated: bool = False
    moved: float = 0.0
    """logp - logp_start of each of its tokens, nats."""
    ratio: float = 1.0
    """Trainer / sampler on its first `FAR` tokens; 1 on the others."""

    @property
    def weighted(self) -> int:
        """Thinking tokens, and the token that closes them if there is one."""
        return self.thinking + (not self.truncated)

    @property
    def tokens(self) -> int:
        return self.weighted + (0 if self.truncated else ANSWER)


ROLLOUTS = (
    Made("p1@low", "short", 19, clean=True, moved=0.2, ratio=1.5),
    Made("p1@low", "long", 79, clean=True, moved=0.1),
    Made("p1@low", "truncated", CAP, truncated=True, moved=-0.3, ratio=0.5),
    Made("p2@low", "clean", 39, clean=True, moved=0.4),
    Made("p2@low", "looping", 109, looping=True, moved=-0.2),
    Made("p2@low", "wrong", 149),
    Made("p3@low", "wrong", 29, moved=0.1),
    Made("p3@low", "wrong", 59),
    Made("p3@low", "wrong", 89, moved=-0.1),
)
CELLS = [one.cell for one in ROLLOUTS]


class _Outcomes:
    """What `rewards` looks at."""

    clean = np.array([one.clean for one in ROLLOUTS])
    looping = np.array([one.looping for one in ROLLOUTS])
    truncated = np.array([one.truncated for one in ROLLOUTS])
    thinking_length = np.array([one.thinking for one in ROLLOUTS])


@dataclass(frozen=True)
class Example:
    """The worked update under one arm."""

    arm: Arm
    reward: Reward

    @cached_property
    def rewards_R(self) -> np.ndarray:
        penalty = self.arm.truncation_penalty or 0.0
        return rewards(CELLS, _Outcomes(), REFERENCE, self.reward, truncation_penalty=penalty)

    @cached_property
    def batch(self) -> RolloutBatch:
        trainer = [np.full(one.tokens, -1.0) for one in ROLLOUTS]
        ratio = [np.where(np.arange(one.tokens) < FAR, one.ratio, 1.0) for one in ROLLOUTS]
        whole = self.arm.tokens == "response"
        return RolloutBatch(
            cells=CELLS,
            rewards_R=self.rewards_R,
            truncated_R=_Outcomes.truncated,
            lengths_R=np.array([one.tokens for one in ROLLOUTS]),
            weighted_start_R=np.zeros(len(ROLLOUTS), dtype=np.int64),
            weighted_length_R=np.array([one.tokens if whole else one.weighted for one in ROLLOUTS]),
            sampler_logprobs=[own - np.log(far) for own, far in zip(trainer, ratio, strict=True)],
            entropy=[_entropy(one) for one in ROLLOUTS],
        )

    @cached_property
    def weights(self) -> Weights:
        trainer = [np.full(one.tokens, -1.0) for one in ROLLOUTS]
        start = [own - one.moved for own, one in zip(trainer, ROLLOUTS, strict=True)]
        return token_weights(self.arm, self.batch, S0, CAP, Logprobs(trainer=trainer, start=start))

    @cached_property
    def counted(self) -> Rollouts:
        return count_rollouts(self.arm, self.batch, S0, CAP)[0]

    @property
    def anchored_R(self) -> np.ndarray:
        """bool [R]: rollouts that can carry weight at all."""
        kept_R = count_rollouts(self.arm, self.batch, S0, CAP)[1]
        return kept_R if self.arm.finish_push else self.counted.in_loss_R

    def values(self, row: int) -> list[tuple[float, int]]:
        """(weight, how many of the rollout's weighted tokens have it), the most frequent first."""
        span = self.weights.tokens[row][: self.batch.weighted_length_R[row]]
        found, first, counts = np.unique(np.round(span, 12), return_index=True, return_counts=True)
        order = sorted(range(len(found)), key=lambda place: (-counts[place], first[place]))
        return [(float(found[place]) + 0.0, int(counts[place])) for place in order]

    def rows(self) -> list[dict[str, Any]]:
        """One entry a rollout; what an arm does not look at is left out."""
        result = []
        for row, one in enumerate(ROLLOUTS):
            weights, kl = self.weights.tokens[row], self.weights.kl[row]
            entry = {
                "rollout": row + 1,
                "cell": one.cell,
                "what": one.what,
                "reward": float(self.rewards_R[row]),
                "advantage": float(self.weights.advantages_R[row]) + 0.0,
                "weighted_tokens": int(self.batch.weighted_length_R[row]),
                "weights": [{"weight": weight, "tokens": tokens} for weight, tokens in self.values(row)],
                "total": math.fsum(weights) + 0.0,
            }
            if self.arm.kl is not None:
                entry |= {"moved": one.moved, "kl_total": math.fsum(kl) + 0.0}
            if self.arm.clip is not None:
                entry |= {"ratio": one.ratio, "clipped_tokens": int(self.weights.clipped_R[row])}
            result.append(entry)
        return result

    def sums(self) -> dict[str, Any]:
        """The audit of the update, as a run would write it."""
        found = audit_weights(self.weights, self.batch.truncated_R, ["made up"] * len(ROLLOUTS), ["made up"] * len(ROLLOUTS))
        sums = {name: None if found[name] is None else round(found[name], 12) + 0.0 for name in SUMS}
        return sums | {name: found[name] for name in ("no_signal_cells", "clipped_tokens")}

    def by_hand(self, row: int) -> list[tuple[str, str]]:
        """(what, arithmetic) for one rollout, so that it can be done again with pencil and paper."""
        lines = [("reward", self._reward(row)), *self._advantage(row)]
        if not self.anchored_R[row]:
            return [*lines, ("weight", "0 on every token")]
        values = sorted(self.values(row), key=lambda value: value[0] == 0)
        weight = float(self.weights.tokens[row][self._token(row)])
        spread = self.arm.kl is not None and self.arm.kl.unit == "advantage" and not self.counted.in_loss_R[row]
        lines.append(("weight", short(weight) if spread else f"{self._substituted(row)} = {short(weight)}"))
        total = " + ".join(f"{count} × {_bracketed(value)}" for value, count in values)
        lines.append(("total", f"{total} = {short(math.fsum(self.weights.tokens[row]))}"))
        return lines

    def _reward(self, row: int) -> str:
        one, value = ROLLOUTS[row], short(self.rewards_R[row])
        terms = "0"
        if one.clean:
            reference, bonus = REFERENCE.get(one.cell), self.reward.length_bonus
            terms = "1"
            if reference is not None and bonus:
                length = f"({short(reference)} − {one.thinking}) / {short(reference)}"
                terms += f" + {number(bonus)} × min(max({length}, −1), 1)"
        if one.looping and self.reward.loop_penalty:
            terms += f" − {number(self.reward.loop_penalty)}"
        if one.truncated and self.arm.truncation_penalty:
            terms += f" − {number(self.arm.truncation_penalty)}"
        return value if terms == value else f"{terms} = {value}"

    def _advantage(self, row: int) -> list[tuple[str, str]]:
        out, advantage = self._left_out(row), float(self.weights.advantages_R[row])
        if out:
            return [("advantage", f"0: {out}")]
        group = [other for other in range(len(ROLLOUTS)) if CELLS[other] == CELLS[row] and self._in_baseline(other)]
        values = [float(self.rewards_R[other]) for other in group]
        own, lines, text = short(self.rewards_R[row]), [], ""
        if self.arm.baseline == "mean":
            text = f"{own} − {_mean(values)}"
        elif self.arm.baseline == "leave_one_out":
            text = f"{own} − {_mean([float(self.rewards_R[other]) for other in group if other != row])}"
        else:
            text = own
        if self.arm.scale == "std":
            spread, mean = np.std(values, ddof=1), short(np.mean(values))
            squares = " + ".join(f"({short(value)} − {mean})²" for value in values)
            lines.append(("std(r)", f"√(({squares}) / {len(values) - 1}) = {short(spread)}"))
            text = f"({text}) / {short(spread)}"
        shown = "max(" + text + ", 0)" if self.arm.advantages == "positive" else text
        return [*lines, ("advantage", shown if shown == short(advantage) else f"{shown} = {short(advantage)}")]

    def _in_baseline(self, row: int) -> bool:
        return not (ROLLOUTS[row].truncated and self.arm.truncated == "apart")

    def _left_out(self, row: int) -> str:
        """Why the rollout has no advantage at all; empty if it is in the loss and its group has a signal."""
        if ROLLOUTS[row].truncated and self.arm.truncated in ("apart", "mask"):
            return f"a truncated rollout is out of the loss (truncated: {self.arm.truncated})"
        if CELLS[row] in self.weights.no_signal:
            return "the rewards of its group are all equal"
        return ""

    def _token(self, row: int) -> int:
        """The first token that the clip leaves alone: the one that is worked by hand."""
        return FAR if self.weights.clipped_R[row] else 0

    def _substituted(self, row: int) -> str:
        """The arm's formula with this rollout's numbers in place of letters, for a token that the clip leaves alone."""
        counted, one = self.counted, ROLLOUTS[row]
        in_loss, lengths = counted.in_loss_R, counted.counted_lengths_R
        groups, rollouts = len(np.unique(counted.group_R[in_loss])), int(in_loss.sum())
        of_group = float(counted.group_lengths_R[row])
        ranked = [own for own, kept in zip(counted.entropy, in_loss, strict=True) if kept]
        values = {
            "A_i": float(self.weights.advantages_R[row]),
            "s0": S0,
            "max_tokens": CAP,
            "L_i": float(self.batch.weighted_length_R[row]),
            "Lbar_g": of_group / max(float(counted.group_counts_R[row]), 1.0),
            "L_g": of_group,
            "Lbar": float(lengths.sum()) / max(rollouts, 1),
            "R": rollouts,
            "G": groups,
            "c": 1.0,
            "H_t": float(self.batch.entropy[row][self._token(row)]),
            "tau": threshold(ranked),
        }
        text = arm_formula(self.arm).replace("max(A_i, 0)", "A_i")  # the line above has taken the sign already
        text = text.replace("±", "−" if one.truncated else "+")
        text = text.replace("logp − logp_start", _bracketed(one.moved)).replace("logp_start − logp", _bracketed(-one.moved))
        text = re.sub(r"[A-Za-z]\w*", lambda found: _bracketed(values[found[0]]) if found[0] in values else found[0], text)
        text = re.sub(r"\((\(−[\d.e−]+\))\)", r"\1", text)
        return re.sub(r"max\(\((−[\d.e−]+)\),", r"max(\1,", text)


def _entropy(one: Made) -> np.ndarray:
    """Nats: 1 on the first fifth of the weighted tokens and of the answer, 0.1 on the others."""
    answer = 0 if one.truncated else ANSWER
    parts = [np.where(np.arange(length) < length // 5, 1.0, 0.1) for length in (one.weighted, answer)]
    return np.concatenate(parts)


def _mean(values: list[float]) -> str:
    return f"({' + '.join(_bracketed(value) for value in values)}) / {len(values)}"


def short(value: float) -> str:
    """Four digits."""
    text = f"{float(value) + 0.0:.4g}"
    return text.replace("-", "−")


def _bracketed(value: float) -> str:
    text = short(value)
    return f"({text})" if text.startswith("−") else text
