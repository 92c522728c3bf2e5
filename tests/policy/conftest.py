"""Small random models: real transformers and peft code, made in a second."""

from pathlib import Path

import pytest
import torch
import yaml
from peft import LoraConfig, get_peft_model

from ablation.plan.model import Plan
from tests.small_models import END, PAD, TARGETS, small_llama


@pytest.fixture(scope="session")
def model_folders(tmp_path_factory) -> tuple[Path, Path]:
    """(base, start adapter) on disk; the adapter has an effect."""
    folder = tmp_path_factory.mktemp("small")
    model = small_llama()
    model.save_pretrained(folder / "base")
    adapted = get_peft_model(model, LoraConfig(r=4, lora_alpha=4, target_modules=TARGETS))
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.1)
    adapted.save_pretrained(str(folder / "adapter"), save_embedding_layers=False)
    return folder / "base", folder / "adapter"


@pytest.fixture(scope="session")
def small_plan() -> Plan:
    tree = yaml.safe_load((Path(__file__).parents[2] / "plans" / "quickstart.yaml").read_text())
    tree["model"]["lora"] = {"rank": 4, "alpha": 4, "targets": TARGETS}
    tree["problems"]["cells"] = {"low": [f"p{number}" for number in range(58)]}
    tree["sampling"] = {"max_tokens": 24, "batch_rollouts": 16}
    tree["training"] |= {"learning_rate": 0.001, "micro_batch_tokens": 100000}
    return Plan.model_validate(tree)


@pytest.fixture
def make_policy(model_folders, small_plan):
    """A policy in float64 (or as asked), with fields of the plan's `training` as asked."""
    from ablation.policy.local import LocalPolicy

    def make(dtype=torch.float64, folders=model_folders, model=None, **training):
        tree = small_plan.model_dump(mode="json")
        tree["training"] |= training
        tree["model"] |= model or {}
        return LocalPolicy(Plan.model_validate(tree), *folders, end_ids=(END,), pad_id=PAD, dtype=dtype)

    return make


@pytest.fixture
def policy(model_folders, small_plan):
    from ablation.policy.local import LocalPolicy

    return LocalPolicy(small_plan, *model_folders, end_ids=(END,), pad_id=PAD)
