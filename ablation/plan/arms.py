"""What is trained: reward, optimizer, arms. An arm is data; `training.weights` turns it into one array."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from ablation.plan.section import LARGEST, Decay, NonNegativeFloat, PositiveFloat, PositiveInt, Section, Share, Text, refuse_any


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
    """A pull toward the start, or none."""
    advantages: Literal["all", "positive"] = "all"
    """`positive`: only rollouts with a positive advantage enter the loss."""
    learning_rate: PositiveFloat | None = None
    """Overrides `training.learning_rate` for this arm."""
    note: Text | None = None
    """For readers; it moves no number, but is part of what is locked."""

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
    """How far length can move the reward of a correct and clean rollout, up or down."""
    length_reference: Literal["sweep"] = "sweep"
    """L_ref: mean clean thinking length of the family's sweep in that cell; a cell without one gets no length term."""


class Adam(Section):
    """Adam as in torch.optim.Adam (weight_decay 0 means plain Adam), fresh for every arm."""

    name: Literal["adam"] = "adam"
    """The only optimizer there is."""
    state: Literal["fresh"] = "fresh"
    """Every arm starts with empty moments."""
    beta1: Decay = 0.9
    """Decay of the mean of gradients, per update."""
    beta2: Decay = 0.95
    """Decay of the mean of squared gradients, per update."""
    eps: PositiveFloat = 1e-8
    """Added to the root of the second moment."""
    weight_decay: NonNegativeFloat = 0.0
    """L2 penalty, added to the gradient."""


class Training(Section):
    """What all arms share."""

    updates: PositiveInt
    """Adam steps of each arm. The cells are shuffled by the family's seed and dealt over them, none twice."""
    rollouts_per_cell: int = Field(ge=2, le=LARGEST)
    """Rollouts of each cell in a sweep, an update and a readout: the group of an advantage, so at least two."""
    learning_rate: PositiveFloat
    """Adam's step size, for every arm without its own."""
    optimizer: Adam = Field(default_factory=Adam)
    """Adam's other constants."""
    reward: Reward = Field(default_factory=Reward)
    """What a rollout earns."""
    s0: PositiveFloat | Literal["sweep"] = "sweep"
    """The fixed scale: a number, or the mean thinking length of the first family's untruncated sweep rollouts."""
    micro_batch_tokens: PositiveInt = 16384
    """Padded tokens in one forward/backward pass. Changes memory and the last bits of a sum, not what an arm is."""
