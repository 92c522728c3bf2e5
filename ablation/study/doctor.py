"""Everything that a run proves of its model before it samples, without a run: before a plan is locked, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ablation.plan.locate import locate
from ablation.plan.model import Plan
from ablation.problems.problem import load_problems
from ablation.problems.render import token_ids
from ablation.study.backends import ModelFolders, Tells, load_backend
from ablation.study.machine import Machine
from ablation.study.sampler import Prompts


def examine(plan: Plan, plan_path: Path, reporter: Tells, machine: Machine) -> dict[str, Any]:
    """Load what the plan names as a run would. Returns the engine's record and what was proven; raises what a run would."""
    from ablation.policy.tokenizer import load_tokenizer

    base, adapter = (locate(one, plan_path) for one in (plan.model.base, plan.model.start_adapter))
    reporter.say(f"loading {plan.model.base.at}")
    tokenizer = load_tokenizer(base)
    ids = token_ids(tokenizer, plan.model.tokens)
    prompts = Prompts(plan, load_problems(locate(plan.problems.training, plan_path)), tokenizer)
    pad = tokenizer.pad_token_id
    folders = ModelFolders(base, adapter, ids.end, ids.end[0] if pad is None else pad)
    policy, engine, proof = load_backend(plan, folders, prompts, reporter, machine)
    policy.close()
    return {"engine": engine, **proof}
