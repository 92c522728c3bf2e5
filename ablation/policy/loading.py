"""From the model folders of a plan to one model with one adapter, whole: a weight that is not on disk is never made up."""

from __future__ import annotations

import gc
from pathlib import Path

import torch
from peft import PeftModel, get_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from ablation.errors import UsageError
from ablation.plan.load import field_path
from ablation.plan.model import Plan
from ablation.plan.model_files import ADAPTER_CONFIG, ADAPTER_FILE, adapter_problems, base_problems
from ablation.policy.tokenizer import UNUSABLE_TEXT, load_tokenizer, unusable

__all__ = ["DTYPES", "UNUSABLE", "free_memory", "load_adapted", "load_tokenizer"]
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
# What transformers, peft, tokenizers and safetensors raise for files that they cannot use.
UNUSABLE = (*UNUSABLE_TEXT, SafetensorError)


def free_memory() -> None:
    """Give back what models that nobody holds any more have taken, on the accelerator, too."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def load_adapted(plan: Plan, base: Path, start_adapter: Path, dtype: torch.dtype | None = None) -> PeftModel:
    """The frozen base with the trainable start adapter, every weight of both read from disk.

    The base has the plan's dtype and the adapter float32, unless `dtype` says otherwise: float64 is for both.

    Raises `UsageError` if a file cannot be used, a weight is missing, of another shape or not finite, or the adapter is not the
    one that the plan describes.
    """
    check_folders(plan, base, start_adapter)
    try:
        base_model, loaded = AutoModelForCausalLM.from_pretrained(
            base,
            dtype=dtype or DTYPES[plan.model.dtype],
            attn_implementation="sdpa",
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except UNUSABLE as error:
        raise unusable("model.base", base, "model", error) from error
    missing = sorted(map(str, [*loaded["missing_keys"], *loaded["mismatched_keys"]]))
    if missing:
        raise UsageError(
            f"model.base: {base}: {len(missing)} weights are not in the model's files, for instance {missing[0]}",
            hint="They would be random numbers. Name the whole model.",
        )
    path = start_adapter / ADAPTER_FILE
    try:
        stored = load_file(path)
        model = PeftModel.from_pretrained(base_model, str(start_adapter), is_trainable=True, autocast_adapter_dtype=True)
    except UNUSABLE as error:
        raise unusable("model.start_adapter", start_adapter, "adapter", error) from error
    check_adapter(model, stored, start_adapter)
    return model


def check_folders(plan: Plan, base: Path, start_adapter: Path) -> None:
    """Raise `UsageError` if what the folders' JSON files say is not what the plan says."""
    problems = adapter_problems(plan, start_adapter)
    problems += [one for one in base_problems(plan, base) if one[0][:2] in (("model", "lora"), ("model", "base"))]
    if problems:
        raise UsageError(
            "\n".join(f"{field_path(path)}: {text}" for path, text in problems),
            hint="Correct the plan before it is locked, or name the files that it means.",
        )
    if (base / ADAPTER_CONFIG).exists():  # transformers would wrap it, and a second wrap would train beside the first
        raise UsageError(
            f"model.base: {base / ADAPTER_CONFIG}: there is an adapter in the base's folder",
            hint="A base is a model without an adapter: merge it in, or name the adapter as model.start_adapter.",
        )


def check_adapter(model: PeftModel, stored: dict[str, torch.Tensor], start_adapter: Path) -> None:
    """Raise `UsageError` unless `stored`, from the start adapter's file, is finite and exactly what `model` has for it."""
    path = start_adapter / ADAPTER_FILE
    wanted = get_peft_model_state_dict(model, save_embedding_layers=False).keys()
    for names, what in ((wanted - stored.keys(), "is missing"), (stored.keys() - wanted, "has no place in this model")):
        if names:
            raise UsageError(
                f"model.start_adapter: {path}: weight `{min(names)}` {what}",
                hint=f"{ADAPTER_CONFIG} and {ADAPTER_FILE} must be of one adapter, and of this model.",
            )
    broken = [name for name, weight in sorted(stored.items()) if not torch.isfinite(weight).all()]
    if broken:
        raise UsageError(f"model.start_adapter: {path}: weight `{broken[0]}` holds numbers that are not finite")
