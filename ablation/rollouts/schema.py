"""One row per rollout, as it was sampled. Nothing here is ever rewritten or re-encoded."""

from __future__ import annotations

from dataclasses import dataclass, field

from ablation.rollouts.values import RAW

SCHEMA_VERSION = 1

KEY = ("family", "arm", "stage", "update", "problem", "effort", "index")
"""What names a rollout. No two rows of a run share it."""


@dataclass(frozen=True)
class Cell:
    """One problem at one effort."""

    problem: str
    effort: str

    @property
    def id(self) -> str:
        return f"{self.problem}@{self.effort}"


@dataclass
class Rollout:
    """A sampled response and what the sampler said of it. T = sampled tokens.

    `token_ids`, `logprobs` (nats, raw: full vocabulary at temperature 1, whatever the sampling values),
    `top_entropy` (nats, of the renormalized `top_logprobs` most likely tokens) and `top_mass` (their total
    probability) all have length T.
    """

    family: str
    arm: str  # "start" for the sweep
    stage: str  # "sweep" | "update" | "readout" | "check"
    update: int  # 1.. for stage "update"; for a readout or check the number of updates done; 0 for a sweep
    problem: str
    effort: str
    source: str
    index: int  # 0.. within the cell
    seed: int
    prompt_sha256: str  # of the prompt ids as little-endian int32
    prompt_length: int
    prompt_opens_thinking: bool  # the rendered prompt ends inside an open thinking block
    token_ids: list[int]
    logprobs: list[float]
    top_entropy: list[float]
    top_mass: list[float]
    finish_reason: str  # "stop" (ended with an end token) | "length" (hit the cap)
    # Decoded at sampling time, for graders and readers; never encoded again. None: it was redacted where it was sampled.
    thinking_text: str | None
    answer_text: str  # visible answer: what follows the closing token, without the end token
    stop_id: int | None = None  # the end token that it stopped at, by the engine's word; None: it was cut
    sampling: str = ""  # `values.values_text` of every value in effect; "": not known, as of what was sampled elsewhere
    logprob_kind: str = RAW

    @property
    def cell(self) -> Cell:
        return Cell(self.problem, self.effort)

    @property
    def key(self) -> tuple:
        return tuple(getattr(self, name) for name in KEY)


@dataclass(frozen=True)
class StageInfo:
    """What all rows of one stage share; kept in the Parquet metadata of every part."""

    plan_digest: str  # the canonical digest
    family: str
    arm: str
    stage: str
    update: int
    adapter_sha256: str
    think_open_id: int
    think_close_id: int
    end_ids: tuple[int, ...]
    max_tokens: int
    sampling: dict = field(default_factory=dict)  # every sampling value in effect
    engine: dict = field(default_factory=dict)  # name, versions, dtype, threads
    logprob_kind: str = RAW
    schema_version: int = SCHEMA_VERSION
