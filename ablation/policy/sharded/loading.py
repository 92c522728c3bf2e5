"""From the model folders of a plan to a model that is divided over processes from the first byte.

The model is made without weights; FSDP (`torch.distributed.fsdp.fully_shard`) divides it; each process reads its own rows of
every weight from the files. No process ever holds more than its part.
"""

from __future__ import annotations

from pathlib import Path

import torch
from accelerate import init_empty_weights
from peft import PeftConfig, PeftModel, get_peft_model
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from ablation.errors import UsageError
from ablation.files import parse_json
from ablation.plan.model import Plan
from ablation.plan.model_files import ADAPTER_FILE
from ablation.policy.loading import DTYPES, UNUSABLE, check_adapter, check_folders, unusable
from ablation.policy.sharded.whole import own_rows


def without_weights(plan: Plan, base: Path, start_adapter: Path, dtype: torch.dtype | None) -> PeftModel:
    """The adapted model as `loading.load_adapted` makes it, all its parameters on the device `meta`. Raises as that does."""
    check_folders(plan, base, start_adapter)
    try:
        config = AutoConfig.from_pretrained(base, local_files_only=True, trust_remote_code=False)
        with init_empty_weights():  # its buffers are computed
            causal = AutoModelForCausalLM.from_config(config, dtype=dtype or DTYPES[plan.model.dtype], attn_implementation="sdpa")
    except UNUSABLE as error:
        raise unusable("model.base", base, "model", error) from error
    head, inside = causal.get_output_embeddings(), causal.get_input_embeddings()
    if head.weight is inside.weight:  # one weight cannot be of two parts that are gathered at different times
        head.weight = nn.Parameter(torch.empty_like(head.weight), requires_grad=False)
    try:
        adapter = PeftConfig.from_pretrained(str(start_adapter))
        adapter.inference_mode = False
        with init_empty_weights():
            return get_peft_model(causal, adapter, autocast_adapter_dtype=True)
    except UNUSABLE as error:
        raise unusable("model.start_adapter", start_adapter, "adapter", error) from error


def divide(model: PeftModel, mesh: DeviceMesh) -> None:
    """Divide every parameter over `mesh`: a decoder layer is gathered as one, embeddings and head by themselves.

    Gradients are summed over the processes, not averaged: the loss is a plain sum over tokens.
    """
    causal = model.get_base_model()
    backbone = causal.base_model
    layers = [module for module in backbone.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise UsageError(
            f"model.base: {type(causal).__name__} has no decoder layers that can be divided over processes",
            hint="Without --processes it is loaded whole.",
        )
    for module in (*layers, causal.get_input_embeddings(), causal.get_output_embeddings(), backbone):
        fully_shard(module, mesh=mesh, reshard_after_forward=True)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    left = [name for name, weight in model.named_parameters() if not isinstance(weight, DTensor)]
    assert not left, f"{left[0]} is not divided"


def fill(model: PeftModel, base: Path, start_adapter: Path, device: torch.device) -> None:
    """Give a divided model without weights this process's part of them, each read from its file."""
    buffers = {name: buffer.to(device, copy=True) for name, buffer in model.named_buffers()}
    model.to_empty(device=device)
    for name, buffer in model.named_buffers():
        buffer.copy_(buffers[name])
    try:
        stored = load_file(start_adapter / ADAPTER_FILE)
    except UNUSABLE as error:
        raise unusable("model.start_adapter", start_adapter, "adapter", error) from error
    check_adapter(model, stored, start_adapter)
    files = _files(base)
    wanted: dict[str, list[tuple[str, DTensor]]] = {}
    tied, missing = second_name_of_tied_weight(model), []
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            key = name.replace(".default.", ".")
            _copy(f"{start_adapter / ADAPTER_FILE}: `{key}`", stored[key], weight)
            continue
        key = name_in_base(name if name != tied else _names(model)[_plain(model.get_base_model().get_input_embeddings()).weight])
        if key in files:
            wanted.setdefault(files[key], []).append((key, weight))
        else:
            missing.append(key)
    if missing:
        raise UsageError(
            f"model.base: {base}: {len(missing)} weights are not in the model's files, for instance {min(missing)}",
            hint="Name the whole model, saved under the names that transformers gives its weights.",
        )
    for file, weights in wanted.items():
        try:
            with safe_open(base / file, framework="pt") as opened:
                for key, weight in weights:
                    _copy(f"{base / file}: `{key}`", opened.get_slice(key), weight)
        except (OSError, SafetensorError) as error:
            raise unusable("model.base", base, "model", error) from error


def name_in_base(name: str) -> str:
    """The name of a base's weight in its own files."""
    return name.removeprefix("base_model.model.").replace(".base_layer.", ".")


def second_name_of_tied_weight(model: PeftModel) -> str | None:
    """The name of the head's weight, in a model whose config says that it is the embedding's; None in others."""
    causal = model.get_base_model()
    if not getattr(causal.config.get_text_config(), "tie_word_embeddings", False):
        return None
    return _names(model)[_plain(causal.get_output_embeddings()).weight]


def _names(model: nn.Module) -> dict[nn.Parameter, str]:
    return {weight: name for name, weight in model.named_parameters()}


def _plain(module: nn.Module) -> nn.Module:
    """The layer under an adapter."""
    return getattr(module, "base_layer", module)


def _files(base: Path) -> dict[str, str]:
    """Weight -> file of the folder."""
    index = base / SAFE_WEIGHTS_INDEX_NAME
    try:
        if index.exists():
            return dict(parse_json(index.read_bytes())["weight_map"])
        with safe_open(base / SAFE_WEIGHTS_NAME, framework="pt") as opened:
            return dict.fromkeys(opened.keys(), SAFE_WEIGHTS_NAME)
    except (*UNUSABLE, FileNotFoundError) as error:
        raise unusable("model.base", base, "model", error) from error


@torch.no_grad()
def _copy(what: str, source, weight: DTensor) -> None:
    """This process's rows of `source`, a tensor or a slice of a file."""
    shape = tuple(source.get_shape() if hasattr(source, "get_shape") else source.shape)
    if shape != tuple(weight.shape):
        raise UsageError(f"{what} has the shape {shape}, the model's weight {tuple(weight.shape)}")
    rows = own_rows(shape[0], weight.device_mesh.get_local_rank(), weight.device_mesh.size())
    weight.to_local().copy_(source[rows])
