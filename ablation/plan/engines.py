"""What samples and trains: this machine's transformers alone, or vLLM as the sampler beside it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from ablation.plan.section import PositiveFloat, PositiveInt, Section, refuse_any


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


class Policy(Section):
    """What samples and trains."""

    backend: Literal["local", "vllm"] = "local"
    """`local`: transformers and peft on this machine. `vllm`: the same trains, and vLLM samples."""
    threads: int = Field(default=1, ge=1, le=1024)
    """CPU threads: recorded and held fixed, because they order floating-point sums."""
    vllm: Vllm | None = None
    """How vLLM samples, with `backend: vllm` alone; left out there, its own defaults."""

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_vllm(cls, value: Any) -> Any:
        if isinstance(value, dict) and value.get("backend") == "vllm" and value.get("vllm") is None:
            return {**value, "vllm": {}}
        return value

    @model_validator(mode="after")
    def _only_with_vllm(self) -> Policy:
        if self.vllm is not None and self.backend != "vllm":
            refuse_any(
                [(("vllm",), f"says how vLLM samples, but `backend` is `{self.backend}`; plan `backend: vllm` or leave it out")]
            )
        return self
