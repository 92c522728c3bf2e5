"""What is trained: reward, optimizer, arms. An arm is data; `training.weights` turns it into one array."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from ablation.plan.section import NonNegativeFloat, PositiveFloat, PositiveInt, Section, Share, Text, refuse_any


class KLAnchor(Section):
    """`- beta * (logp - logp_start)` added to each token's weight: a pull toward the starting adapter."""

    beta: PositiveFloat
    """Weight per nat."""
    damp_only: bool = False
    """The term may shrink a weight toward zero, but never grow it or turn its sign (arm P)."""


class Arm(Section):
    """One training run. Every field that is left out is what the control of the study did."""

    weighting: Literal["token", "rollout"]
    """`token`: each token of rollout i gets A_i * s0 / Lbar_g. `rollout`: each token gets A_i * s0 / L_i."""
    truncated: Literal["keep", "apart"] = "keep"
    """`apart`: truncated rollouts leave the group's baseline and the advantage part of the loss."""
    finish_push: NonNegativeFloat = 0.0
    """Total weight, in units of s0, added to each finished rollout and taken from each truncated one, spread over its tokens."""
    kl: KLAnchor | None = None
    advantages: Literal["all", "positive"] = "all"
    """`positive`: only rollouts with a positive advantage enter the loss."""
    learning_rate: PositiveFloat | None = None
    """Overrides `training.learning_rate` for this arm."""
    note: Text | None = None

    @model_validator(mode="after")
    def _combination(self) -> Arm:
        problems: list[tuple[tuple[str | int, ...], str]] = []
        if self.kl is not None and self.kl.damp_only and self.advantages != "positive":
            problems.append((("kl", "damp_only"), "needs `advantages: positive` (it damps positive weights)"))
        if self.advantages == "positive" and self.finish_push > 0:
            problems.append((("finish_push",), "puts negative weight on truncated rollouts; `advantages: positive` forbids it"))
        refuse_any(problems)
        return self


class Reward(Section):
    """0 unless the rollout is correct and clean; otherwise 1 + length_bonus * clip((L_ref - L) / L_ref, -1, 1)."""

    length_bonus: Share = 0.3
    length_reference: Literal["sweep"] = "sweep"
    """L_ref: mean clean thinking length of the family's sweep in that cell; a cell without one gets no length term."""


class Adam(Section):
    """Adam as in torch.optim.Adam (weight_decay 0 means plain Adam), fresh for every arm."""

    name: Literal["adam"] = "adam"
    state: Literal["fresh"] = "fresh"
    beta1: Share = 0.9
    beta2: Share = 0.95
    eps: PositiveFloat = 1e-8
    weight_decay: NonNegativeFloat = 0.0


class Training(Section):
    """What all arms share."""

    updates: PositiveInt
    rollouts_per_cell: PositiveInt
    learning_rate: PositiveFloat
    optimizer: Adam = Field(default_factory=Adam)
    reward: Reward = Field(default_factory=Reward)
    s0: PositiveFloat | Literal["sweep"] = "sweep"
    """The fixed scale: a number, or the mean thinking length of the first family's untruncated sweep rollouts."""
    micro_batch_tokens: PositiveInt = 16384
    """Padded tokens in one forward/backward pass. Changes memory and the last bits of a sum, not what an arm is."""
