"""What is trained: reward, optimizer, arms. An arm is data; `training.weights` turns it into one array."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from ablation.plan.explain import found
from ablation.plan.external import External, external_problems
from ablation.plan.section import (
    LARGEST,
    Decay,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Section,
    Share,
    Text,
    did_you_mean,
    refuse_any,
)
from ablation.plan.weightings import WEIGHTINGS
from ablation.plan.yaml_reader import read_yaml

Epsilon = Annotated[float, Field(ge=1e-30, le=LARGEST)]
"""Below, it would be 0 in float32, and Adam would divide 0 by 0 for every weight without a gradient."""


class KLAnchor(Section):
    """A term in each token's weight that pulls it toward the starting adapter. d = logp - logp_start, in nats."""

    beta: PositiveFloat
    """The coefficient."""
    estimator: Literal["k1", "k3"] = "k1"
    """`k1`: - beta * d (so does the gradient of 0.5 * d^2, k2). `k3`: - beta * (1 - exp(-d)), the gradient of GRPO's term."""
    unit: Literal["token", "advantage"] = "token"
    """`token`: beta is a weight. `advantage`: the weighting spreads it like an advantage of that size, as GRPO's loss does."""
    damp_only: bool = False
    """The term may shrink a weight toward zero, but never grow it or turn its sign (arm P)."""


class Clip(Section):
    """PPO's clip of the ratio trainer / sampler of a token, scored before the update: outside it, on the side where the
    clipped objective is flat, the token's weight is 0. An update is one step, so this is that objective's gradient."""

    low: Annotated[float, Field(gt=0, le=1)] = 0.2
    """A token with a negative weight counts while its ratio is at least 1 - low."""
    high: PositiveFloat = 0.2
    """A token with a positive weight counts while its ratio is at most 1 + high."""


class ArmReward(Section):
    """What an arm's reward does otherwise; what is left out is as in `training.reward`."""

    length_bonus: Share | None = None
    """Instead of `training.reward.length_bonus`."""
    loop_penalty: NonNegativeFloat | None = None
    """Instead of `training.reward.loop_penalty`."""


class ArmAdam(Section):
    """What an arm's optimizer does otherwise; what is left out is as in `training.optimizer`."""

    name: Literal["adam", "adamw"] | None = None
    """Instead of `training.optimizer.name`."""
    state: Literal["fresh", "start"] | None = None
    """Instead of `training.optimizer.state`."""
    beta1: Decay | None = None
    """Instead of `training.optimizer.beta1`."""
    beta2: Decay | None = None
    """Instead of `training.optimizer.beta2`."""
    eps: Epsilon | None = None
    """Instead of `training.optimizer.eps`."""
    weight_decay: NonNegativeFloat | None = None
    """Instead of `training.optimizer.weight_decay`."""
    max_grad_norm: PositiveFloat | None = None
    """Instead of `training.optimizer.max_grad_norm`."""


def _schema_with_library(schema: dict[str, Any]) -> None:
    """For editors: `library` and `external` may stand in the place of a weighting."""
    meaning = "Takes every field from this arm of the library; fields beside it replace its own."
    schema["properties"]["library"] = {"enum": list(library_arms()), "description": meaning}
    schema["anyOf"] = [{"required": [name]} for name in ("weighting", "library", "external")]


class Arm(Section):
    """One training run: `library: NAME` takes every field from that arm of the library, and fields beside it replace its own.

    Every field that is left out is what the control of the study did.
    """

    model_config = ConfigDict(json_schema_extra=_schema_with_library)

    weighting: Literal[tuple(WEIGHTINGS)] | None = None
    """How an advantage becomes the weight of each token; the formulas are in `ablation arms`. Every arm needs one but
    an `external` one."""
    tokens: Literal["thinking", "response"] = "thinking"
    """Which tokens carry weight: the thinking and the token that closes it, or all that was sampled, end token included."""
    baseline: Literal["mean", "leave_one_out", "none"] = "mean"
    """What a reward is compared with: the mean of its group, the mean of the group's others (RLOO), or nothing (REINFORCE)."""
    scale: Literal["none", "std"] = "none"
    """`std`: advantages are divided by the standard deviation (n - 1) of their group's rewards, as in GRPO."""
    no_signal: Literal["keep", "drop"] = "keep"
    """A group that teaches nothing (equal rewards, one rollout) has advantage 0. `drop`: it leaves divisors and terms, too."""
    advantages: Literal["all", "positive"] = "all"
    """`positive`: only rollouts with a positive advantage enter the loss."""
    truncated: Literal["keep", "apart", "mask", "penalize"] = "keep"
    """`apart`: truncated rollouts leave the group's baseline and the advantage part of the loss. `mask`: they stay in the
    baseline, but carry no weight and leave the divisors (DAPO's overlong filtering). `penalize`: `truncation_penalty` is taken
    from their reward."""
    truncation_penalty: PositiveFloat | None = None
    """With `truncated: penalize`: taken from the reward of each truncated rollout."""
    finish_push: NonNegativeFloat = 0.0
    """Total weight, in units of s0, added to each finished rollout and taken from each truncated one, spread over its tokens."""
    clip: Clip | None = None
    """Clipping of the ratio, or none."""
    kl: KLAnchor | None = None
    """A pull toward the start, or none."""
    reward: ArmReward | None = None
    """Overrides parts of `training.reward` for this arm."""
    learning_rate: PositiveFloat | None = None
    """Overrides `training.learning_rate` for this arm."""
    optimizer: ArmAdam | None = None
    """Overrides parts of `training.optimizer` for this arm."""
    external: External | None = None
    """A command that trains the arm in place of this program; fields that would then do nothing are refused."""
    note: Text | None = None
    """For readers; it moves no number, but is part of what is locked."""

    @model_validator(mode="before")
    @classmethod
    def _from_library(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        if "library" not in data:
            near = [key for key in data if key not in cls.model_fields and did_you_mean(key, ["library"])]
            refuse_any([((key,), "unknown field; did you mean `library`?") for key in near])
            return data
        known, name = library_arms(), data["library"]
        if not isinstance(name, str) or name not in known:
            refuse_any([(("library",), f"found {found(name)}; the library has {', '.join(known)}{did_you_mean(name, known)}")])
        return known[name] | {key: value for key, value in data.items() if key != "library"}

    @property
    def trained_as_a_whole(self) -> bool:
        """Whether one run of a command trains it, so that this program samples no update of it."""
        return self.external is not None and self.external.each == "arm"

    @property
    def same_as(self) -> str:
        """Equal for two arms that train alike whatever their notes and the words for their weighting are."""
        alike = {"grpo": "rollout"}
        if self.truncated in ("keep", "penalize") and self.no_signal == "keep":  # every group has all of its rollouts in the loss
            alike["prompt_mean"] = "token"
        weighting = alike.get(self.weighting, self.weighting)
        return self.model_copy(update={"note": None, "weighting": weighting}).model_dump_json()

    @model_validator(mode="after")
    def _combination(self) -> Arm:
        refuse_any(combination_problems(self))
        return self


def combination_problems(arm: Arm) -> list[tuple[tuple[str | int, ...], str]]:
    """Parts of an arm that contradict each other, or of which one would do nothing."""
    if arm.external is not None:
        return _external_problems(arm, arm.external)
    problems: list[tuple[tuple[str | int, ...], str]] = []
    if arm.weighting is None:
        known = ", ".join(WEIGHTINGS)
        problems.append((("weighting",), f"is missing; it needs `weighting: ...` ({known}), `library: ...` or `external: ...`"))
    if arm.kl is not None and arm.kl.damp_only and arm.advantages != "positive":
        problems.append((("kl", "damp_only"), "needs `advantages: positive` (it damps positive weights)"))
    if arm.advantages == "positive" and arm.finish_push > 0:
        problems.append((("finish_push",), "puts negative weight on truncated rollouts; `advantages: positive` forbids it"))
    if arm.advantages == "positive" and arm.baseline == "none" and arm.truncated != "penalize":
        problems.append((("advantages",), "without a baseline no advantage is negative, so `positive` would do nothing"))
    if arm.baseline == "none" and arm.scale == "std":
        problems.append((("scale",), "`std` needs a baseline: it is the spread around it"))
    if arm.truncated == "mask" and arm.finish_push > 0:
        problems.append((("finish_push",), "weighs truncated rollouts; `truncated: mask` leaves them without weight"))
    if arm.truncated == "penalize" and arm.truncation_penalty is None:
        problems.append((("truncated",), "`penalize` needs `truncation_penalty`"))
    if arm.truncated != "penalize" and arm.truncation_penalty is not None:
        problems.append((("truncation_penalty",), f"goes with `truncated: penalize`; with `{arm.truncated}` it would do nothing"))
    return problems


_OF_EXTERNAL = ("external", "reward", "learning_rate", "note")
"""Fields that say something to the command of an external arm, or to readers."""


def _external_problems(arm: Arm, external: External) -> list[tuple[tuple[str | int, ...], str]]:
    problems: list[tuple[tuple[str | int, ...], str]] = [
        ((name,), "the command of `external` decides this, so it would do nothing here; leave it out")
        for name, info in Arm.model_fields.items()
        if name not in _OF_EXTERNAL and getattr(arm, name) != info.get_default()
    ]
    if arm.reward is not None and external.each == "arm":
        problems.append((("reward",), "with `each: arm` no rollout is graded for the command, so it would do nothing here"))
    return problems + [(("external", *path), text) for path, text in external_problems(external)]


@cache
def library_arms() -> dict[str, dict[str, Any]]:
    """Name -> fields of the arms that a plan can take by name, from `arm_library.yaml`."""
    document = read_yaml((Path(__file__).parent / "arm_library.yaml").read_bytes())
    assert isinstance(document.value, dict) and not document.faults, "a file of this package"
    return document.value


class Reward(Section):
    """Correct and clean: 1 + length_bonus * clip((L_ref - L) / L_ref, -1, 1). Otherwise 0, less what a looping or truncated
    rollout is charged."""

    length_bonus: Share = 0.3
    """How far length can move the reward of a correct and clean rollout, up or down."""
    length_reference: Literal["sweep"] = "sweep"
    """L_ref: mean clean thinking length of the family's sweep in that cell; a cell without one gets no length term."""
    loop_penalty: NonNegativeFloat = 0.0
    """Taken from the reward of a rollout that loops."""


class Adam(Section):
    """Adam as in torch.optim.Adam, or AdamW as in torch.optim.AdamW; without weight decay they are the same."""

    name: Literal["adam", "adamw"] = "adam"
    """Where weight decay acts: in the gradient (`adam`), or on the weights beside it (`adamw`)."""
    state: Literal["fresh", "start"] = "fresh"
    """`fresh`: every arm starts with empty moments; `start`: with those beside the start adapter (optimizer.safetensors)."""
    beta1: Decay = 0.9
    """Decay of the mean of gradients, per update."""
    beta2: Decay = 0.95
    """Decay of the mean of squared gradients, per update."""
    eps: Epsilon = 1e-8
    """Added to the root of the second moment."""
    weight_decay: NonNegativeFloat = 0.0
    """Pull of every weight toward 0, in the way that `name` says."""
    max_grad_norm: PositiveFloat | None = None
    """A gradient with a larger norm is scaled down to it; null: never."""


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
    s0: Annotated[float, Field(gt=0)] | Literal["sweep"] = "sweep"
    """The fixed scale: a number, or the mean thinking length of the first family's untruncated sweep rollouts."""
    micro_batch_tokens: PositiveInt = 16384
    """Tokens in one forward/backward pass, common beginnings counted once. Changes memory and last bits of a sum, not an arm."""
    gradient_checkpointing: bool = False
    """Keep no activations inside a layer and compute them again in the backward pass: less memory, about a third more time."""
    autocast: Literal["none", "bfloat16"] = "none"
    """`bfloat16`: matrix products of training and scoring run in bfloat16 (torch.autocast); adapter and Adam stay float32."""

    def learning_rate_of(self, arm: Arm) -> float:
        """The learning rate of `arm`."""
        return self.learning_rate if arm.learning_rate is None else arm.learning_rate

    def reward_of(self, arm: Arm) -> Reward:
        """The reward of `arm`: its own terms, and the plan's where it has none."""
        return _overridden(self.reward, arm.reward)

    def optimizer_of(self, arm: Arm) -> Adam:
        """The optimizer of `arm`: its own fields, and the plan's where it has none."""
        return _overridden(self.optimizer, arm.optimizer)


def _overridden(base: Reward | Adam, own: ArmReward | ArmAdam | None) -> Any:
    changed = {} if own is None else own.model_dump(exclude_none=True)
    return base.model_copy(update=changed) if changed else base
