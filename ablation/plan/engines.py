"""What samples and trains: this machine's transformers alone, or vLLM as the sampler beside it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from ablation.plan.resources import repeated
from ablation.plan.section import PositiveFloat, PositiveInt, Section, Text, refuse_any

Backend = Literal["local", "vllm", "tinker"]


class Vllm(Section):
    """How vLLM samples. All of it is in the plan because it can change the last bits of a logit, or what fits into memory."""

    engine: Literal["offline", "server"] = "offline"
    """`offline`: an engine that the run starts. `server`: a vLLM server that runs already; a command is told where. Its own
    settings win over those below that say how an engine is started."""
    context: PositiveInt | None = None
    """Most tokens of a prompt and its rollout together; `null`: as many as the model was made for."""
    sequences: int = Field(default=256, ge=1, le=65536)
    """Rollouts decoded at one time; the others wait."""
    batch_tokens: int = Field(default=8192, ge=1, le=2**20)
    """Tokens computed in one step of the engine; at least `context` are, as no prompt is computed in pieces."""
    kv_cache_gb: PositiveFloat = 4.0
    """Memory for keys and values, in 10^9 bytes on each device: it must hold at least one rollout of `context` tokens."""
    tensor_parallel: int = Field(default=1, ge=1, le=1024)
    """GPUs that each layer is split over."""
    replicas: int = Field(default=1, ge=1, le=1024)
    """Engines beside each other, each with GPUs of its own; a stage's rollouts are dealt to them in turn."""
    eager: bool = False
    """No compilation and no CUDA graphs: it starts sooner and samples slower."""
    mismatch: float | None = Field(default=None, gt=0, le=1)
    """Largest mean absolute difference of sampler's and trainer's logprobs (nats) on the preflight's texts; `null`: 0.001 with
    float32, 0.05 with bfloat16."""

    @model_validator(mode="after")
    def _left_to_a_server(self) -> Vllm:
        if self.engine == "server":
            names = ("tensor_parallel", "replicas", "eager", "kv_cache_gb")
            own = [name for name in names if getattr(self, name) != type(self).model_fields[name].default]
            refuse_any([((name,), "is a setting of the server that runs already: leave it out") for name in own])
        return self


class Tinker(Section):
    """A training service of the Tinker protocol: it samples and trains, and nothing of the model is computed here."""

    base_model: Text
    """The name that the service gives to the plan's base."""
    in_flight: int = Field(default=256, ge=1, le=65536)
    """Rollouts under way at one time; the others wait here."""
    mismatch: float | None = Field(default=None, gt=0, le=1)
    """Largest mean absolute difference of the service's sampler and trainer in their logprobs (nats) in the preflight; `null`:
    0.001 with float32, 0.05 with bfloat16."""


class Policy(Section):
    """What samples and trains."""

    backend: Backend = "local"
    """`local`: transformers and peft on this machine. `vllm`: the same trains, and vLLM samples. `tinker`: a training service
    does both."""
    also: list[Backend] = Field(default_factory=list)
    """Other backends that a run may be made with: `ablation run --policy NAME` takes one, for all of its run folder."""
    threads: int = Field(default=1, ge=1, le=1024)
    """CPU threads: recorded and held fixed, because they order floating-point sums."""
    vllm: Vllm | None = None
    """How vLLM samples, where `backend` or `also` names it; left out there, its own defaults."""
    tinker: Tinker | None = None
    """Which service, where `backend` or `also` names it."""

    @property
    def backends(self) -> list[str]:
        """All that a run may be made with, the plan's own first."""
        return [self.backend, *self.also]

    def with_backend(self, backend: str) -> Policy:
        """The policy of a run on `backend`, which is one of `backends`: what is said of others is left out."""
        assert backend in self.backends, backend
        others = {name: None for name in SECTIONS if name != backend}
        return self.model_copy(update={"backend": backend, "also": [], **others})

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_engines(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        also = value.get("also")
        named = [value.get("backend"), *(also if isinstance(also, list) else [])]
        missing = [name for name in SECTIONS if name in named and value.get(name) is None]
        return {**value, **{name: {} for name in missing}} if missing else value

    @model_validator(mode="after")
    def _only_what_is_named(self) -> Policy:
        problems: list[tuple[tuple[str | int, ...], str]] = []
        for place, name in repeated([self.backend, *self.also]):
            problems.append((("also", place - 1), f"`{name}` is named before; `also` lists other backends than `backend`"))
        for name in SECTIONS:
            if getattr(self, name) is not None and name not in self.backends:
                words = f"says how {SECTIONS[name]}, but `backend` is `{self.backend}`"
                problems.append(((name,), f"{words}; plan `backend: {name}`, or name it in `also`, or leave it out"))
        refuse_any(problems)
        return self


SECTIONS = {"vllm": "vLLM samples", "tinker": "a training service is used"}
"""Backends that have a section of their own in `policy`, and what it says."""
