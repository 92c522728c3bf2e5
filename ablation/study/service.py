"""A run at a training service: which one, what of a plan it cannot do, and the policy there once all is proven."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ablation.errors import UsageError
from ablation.plan.arms import Adam
from ablation.plan.cost import base_bytes
from ablation.plan.load import field_path
from ablation.plan.model import Plan
from ablation.study.machine import check_address, without_password
from ablation.study.workspace import free_memory

if TYPE_CHECKING:
    import numpy as np

    from ablation.policy.base import ScoreRow
    from ablation.policy.tinker.policy import TinkerPolicy
    from ablation.study.backends import ModelFolders, Prompts, Tells

SERVER, START = "ABLATION_TINKER_SERVER", "ABLATION_TINKER_START"
"""Where the service is, left out for the client's own; and the stored state there that holds the plan's start adapter."""
NO_ENTROPY = ("entropy", "top20_entropy", "top20_mass")
"""Measures of tokens that were not sampled: the protocol tells nothing of them."""
SHARE = 8
"""The model is computed here for a proof if the memory holds this many of it."""
AT_THE_SERVICE = "at the service"
"""In place of the base's digest: nobody outside sees its weights."""


def service_problems(plan: Plan) -> list[str]:
    """What the plan asks for that no service of the protocol does, as `field: why`. Known without asking one."""
    problems = [
        f"{field_path(path)}: `{measure}` needs the probabilities of tokens that were not sampled, which a service does not tell"
        for path, measure in _measures(plan.model_dump())
        if measure in NO_ENTROPY
    ]
    for name, arm in plan.arms.items():
        if arm.external is not None:
            problems.append(f"arms.{name}.external: a service takes no adapter that a command trained")
            continue
        if arm.weighting == "high_entropy":
            problems.append(
                f"arms.{name}.weighting: `high_entropy` needs the entropy of every token, which a service does not tell"
            )
        adam = plan.training.optimizer_of(arm)
        where = f"arms.{name}.optimizer" if arm.optimizer is not None else "training.optimizer"
        if adam.state == "start":
            problems.append(f"{where}.state: a service takes no moments from outside; `fresh` is what it has")
        if adam.name == "adam" and adam.weight_decay > 0:
            problems.append(f"{where}.name: a service decays weights beside the gradient (`adamw`), not in it (`adam`)")
    return list(dict.fromkeys(problems))


def norm_problems(plan: Plan, metric: str | None) -> list[str]:
    """What the plan asks of the norm of the gradient, where the service does not tell it."""
    if metric is not None:
        return []
    asked = [path for path, measure in _measures(plan.model_dump()) if measure == "grad_norm"]
    return [f"{field_path(path)}: `grad_norm`: the service does not tell the norm of a gradient" for path in asked]


def _measures(tree: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """(path, name) of every `measure` in a plan's tree."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            if key == "measure" and isinstance(value, str):
                yield (*path, key), value
            else:
                yield from _measures(value, (*path, key))
    elif isinstance(tree, list):
        for place, value in enumerate(tree):
            yield from _measures(value, (*path, place))


def service_settings(environment: Mapping[str, str] | None = None) -> tuple[str | None, str]:
    """(address or None, start state). Raises `UsageError` naming the variable that is missing or cannot be."""
    found = os.environ if environment is None else environment
    server, start = found.get(SERVER) or None, found.get(START) or None
    if server is not None:
        check_address(SERVER, server, "TINKER_API_KEY")
    if start is None:
        raise UsageError(
            f"{START} is not set: a service takes no adapter from outside, so the plan's start adapter must be stored there",
            hint="It is the address of a training state (tinker://RUN/weights/NAME) that holds exactly the plan's start adapter. "
            "On a SkyRL server of your own `python -m ablation.recipes.skyrl_start PLAN --checkpoints FOLDER` makes one.",
        )
    parts = start.removeprefix("tinker://").split("/")
    if not start.startswith("tinker://") or len(parts) != 3 or not all(parts) or parts[1] != "weights" or not start.isprintable():
        raise UsageError(
            f"{START}: found `{start}`; an address such as tinker://RUN/weights/NAME is needed",
            hint="Sampler weights (tinker://RUN/sampler_weights/NAME) cannot be trained on.",
        )
    return server, start


def load_service(
    plan: Plan, folders: ModelFolders, prompts: Prompts, reporter: Tells
) -> tuple[TinkerPolicy, dict[str, Any], dict[str, Any]]:
    """(the policy, its engine record, what was proven of it), as `backends.load_backend`."""
    from ablation.policy.tinker.policy import TinkerPolicy
    from ablation.policy.tinker.preflight import need_model, preflight
    from ablation.policy.tinker.service import Service
    from ablation.policy.tinker.weights import from_folder
    from ablation.policy.tokenizer import load_tokenizer

    assert plan.policy.tinker is not None
    _refuse(plan, service_problems(plan))
    server, start = service_settings()
    service = Service(server, reporter.say)
    try:
        reporter.say(f"looking at the training service{'' if server is None else ' at ' + without_password(server)}")
        need_model(service, plan.policy.tinker.base_model)
        policy = TinkerPolicy(plan, service, start, from_folder(folders.adapter), folders.end_ids, AT_THE_SERVICE)
        try:
            reporter.say("comparing what it samples and trains with what the plan says: minutes, if the server has to compile")
            shortest = min((prompts[cell].ids for cell in prompts.cells), key=len)
            tokenizer, reference = load_tokenizer(folders.base), _reference(plan, folders)
            found = preflight(policy, tokenizer, tuple(shortest), _adams(plan), reference)
            _refuse(plan, norm_problems(plan, policy.norm_metric))
        except BaseException:
            policy.close()
            raise
    except BaseException:
        service.close()
        raise
    if found["seeds"] != "honoured":
        reporter.say("the service does not honour seeds: the same rollouts will not come again")
    reporter.say(
        f"the service samples and trains the plan's adapter: {found['mismatch']:.2g} nats apart (bound {found['bound']:g}), "
        f"losses by {found['reduction']['tokens']} over tokens and {found['reduction']['rows']} over rows, made a sum"
    )
    place = {"server": None if server is None else without_password(server), "start_state": start}
    return policy, policy.engine_record(), {"machine": place, "preflight": found}


def _reference(plan: Plan, folders: ModelFolders) -> Callable[[list[ScoreRow]], list[np.ndarray]] | None:
    """Scores rows with the plan's model here; None without torch, without its weights, or where they would fill the memory."""
    free = free_memory(accelerator=False)
    if any(find_spec(name) is None for name in ("torch", "peft")) or not list(folders.base.glob("*.safetensors")):
        return None
    if free is None or SHARE * base_bytes(plan) > free[1]:
        return None

    def score(rows: list[ScoreRow]) -> list[np.ndarray]:
        from ablation.policy.local import LocalPolicy

        return LocalPolicy(plan, folders.base, folders.adapter, folders.end_ids, folders.pad_id).score(rows)

    return score


def _adams(plan: Plan) -> list[Adam]:
    return [plan.training.optimizer_of(arm) for arm in plan.arms.values()]


def _refuse(plan: Plan, problems: list[str]) -> None:
    if problems:
        raise UsageError(
            "\n".join(problems),
            hint=f"Plan `{plan.name}` cannot be run at a training service as it is. Nothing was sampled.",
        )
