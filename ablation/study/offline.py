"""The engines that a run starts itself: whether they fit, where they work, and how they and the trainer share a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ablation.files import parse_json
from ablation.plan.model import Plan
from ablation.plan.model_files import BASE_CONFIG
from ablation.policy.memory import estimate
from ablation.study.machine import Machine
from ablation.study.memory import as_record, choose_turns, this_device

if TYPE_CHECKING:
    from ablation.policy.local import LocalPolicy
    from ablation.policy.vllm.replicas import Engine
    from ablation.policy.vllm.turns import Turns


class Tells(Protocol):
    def say(self, message: str) -> None: ...


class Offline:
    """What is known of a plan's engines before anything is loaded."""

    def __init__(self, plan: Plan, base: Path, prompts: Sequence[Sequence[int]], machine: Machine, reporter: Tells) -> None:
        """Raises `UsageError` if there are too few GPUs, or if trainer and engine cannot fit.

        `prompts`: as ids.
        """
        from ablation.policy.vllm.devices import engine_settings_here, gpu_count, shared_with_trainer
        from ablation.policy.vllm.policy import engine_settings

        vllm = plan.policy.vllm
        assert vllm is not None
        gpus = gpu_count()
        self.device = this_device(gpus)
        here = vllm.replicas  # on a CPU all of them work where the trainer does
        if gpus:
            here = int(shared_with_trainer(vllm.replicas, vllm.tensor_parallel, gpus, machine.processes))
        config = parse_json((base / BASE_CONFIG).read_bytes())
        longest = max(len(prompt) for prompt in prompts)
        self.settings = engine_settings_here(engine_settings(plan, base), vllm.replicas)
        self.estimate = estimate(plan, config, longest, self.device.kind, here, machine.processes)
        self.chosen = choose_turns(plan, self.estimate, self.device, machine.turns, machine.processes)
        self._reporter = reporter
        if self.chosen.mode == "sleep":
            self.settings = [replace(one, sleep=True) for one in self.settings]
        reporter.say(f"turns of trainer and engine: {self.chosen.mode} ({self.chosen.why})")

    def start(self) -> Engine:
        """The engines, ready to be asked as one."""
        from ablation.policy.vllm.client import EngineClient
        from ablation.policy.vllm.replicas import EngineGroup

        return EngineClient(self.settings[0]) if len(self.settings) == 1 else EngineGroup(self.settings)

    def turns(self, trainer: LocalPolicy) -> Turns:
        """How they share a device with `trainer`; the engines are started now, so that a refusal is heard at once."""
        from ablation.policy.vllm.turns import Turns

        own = Turns(trainer, self.start, self.chosen.mode, quickest=self.chosen.quickest, tell=self._reporter.say)
        self._reporter.say("starting vLLM" if len(self.settings) == 1 else f"starting {len(self.settings)} vLLM engines")
        own.engine()
        self._reporter.say(f"vLLM started in {own.seconds['start'][0]:.1f} s")
        return own

    def record(self, turns: Turns) -> dict[str, Any]:
        """For the journal: what was chosen and why, seconds that were measured, and the estimate in bytes."""
        return {"turns": turns.record() | {"why": self.chosen.why}, "memory": as_record(self.estimate, self.device)}
