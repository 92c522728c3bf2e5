"""The layers that a frozen base with LoRA spends its time in, written so that a backward pass keeps and does only what it needs.

What peft and transformers compute is computed here too, with less around it: no copy of the activations in the adapter's
dtype, one product for adding the adapter's part, norms and gates that keep their inputs and nothing else. A module that is not
exactly of a known kind is left alone. Shapes: N tokens, I and O features in and out, R rank.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from peft.tuners.lora import Linear as LoraLinear
from torch import nn
from torch.nn.functional import linear, silu
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

ADAPTER = "default"
# The classes whose forward is weight * (x / rms(x)), and those whose forward is down(silu(gate(x)) * up(x)).
_NORMS = {f"{name}RMSNorm" for name in ("Llama", "Mistral", "Qwen2", "Qwen3", "Olmo2", "SmolLM3", "Phi3")}
_GATED = {f"{name}MLP" for name in ("Llama", "Mistral", "Qwen2", "Qwen3", "Olmo2", "SmolLM3")}


def lighten(model: nn.Module) -> None:
    """Give every known layer of `model` (a peft model) its light forward; parameters and their names stay as they are."""
    for module in model.modules():
        if _is_plain_lora(module):
            module.forward = _lora_forward(module)
        elif type(module).__name__ in _NORMS:
            module.forward = _norm_forward(module)
        elif type(module).__name__ in _GATED and module.config.hidden_act in ("silu", "swish"):
            module.forward = _gated_forward(module)


def recompute_layers(model: nn.Module) -> None:
    """Keep only the input of each decoder layer for the backward pass, which makes the rest again (gradient checkpointing).

    transformers' own switch works in training mode only, with its dropout; here a logprob must not depend on such a mode.
    """
    for module in model.modules():
        if isinstance(module, GradientCheckpointingLayer):
            module.forward = _recomputed(module.forward)


def _recomputed(forward: Callable) -> Callable:
    def call(*arguments, **options):
        if not torch.is_grad_enabled():
            return forward(*arguments, **options)
        return checkpoint(forward, *arguments, use_reentrant=False, preserve_rng_state=False, **options)

    return call


def _is_plain_lora(module: nn.Module) -> bool:
    return (
        type(module) is LoraLinear
        and type(module.base_layer) is nn.Linear
        and list(module.lora_A) == [ADAPTER]
        and not module.lora_variant
        and module.lora_A[ADAPTER].bias is None
        and module.lora_B[ADAPTER].bias is None
    )


def _lora_forward(module: nn.Module) -> Callable:
    base, down, up, scaling = module.base_layer, module.lora_A[ADAPTER], module.lora_B[ADAPTER], module.scaling[ADAPTER]

    def forward(x: torch.Tensor) -> torch.Tensor:
        compute = down.weight.dtype
        if torch.is_autocast_enabled(x.device.type):
            compute = torch.get_autocast_dtype(x.device.type)
            x = x.to(compute)
        out = _LoRA.apply(x.flatten(0, -2), base.weight, base.bias, down.weight, up.weight, scaling, compute)
        return out.view(*x.shape[:-1], -1)

    return forward


class _LoRA(torch.autograd.Function):
    """x W' + b + s (x A') B', the adapter's part in dtype `compute`, rounded once to the dtype of x W', which is that of x.

    W is kept as it is and cast again in the backward pass: a cast copy would stay where W itself is gathered and let go again.
    """

    @staticmethod
    def forward(ctx, x_NI, weight_OI, bias_O, down_RI, up_OR, scaling: float, compute: torch.dtype):
        with torch.autocast(x_NI.device.type, enabled=False):
            out_NO = linear(x_NI, weight_OI.to(x_NI.dtype), None if bias_O is None else bias_O.to(x_NI.dtype))
            inner_NR = x_NI.to(compute) @ down_RI.to(compute).T
            if compute == out_NO.dtype:
                out_NO.addmm_(inner_NR, up_OR.to(compute).T, alpha=scaling)
            else:
                out_NO = out_NO.to(compute).addmm_(inner_NR, up_OR.T, alpha=scaling).to(out_NO.dtype)
        ctx.save_for_backward(x_NI, weight_OI, down_RI, up_OR, inner_NR)
        ctx.scaling = scaling
        return out_NO

    @staticmethod
    def backward(ctx, grad_NO):
        x_NI, weight_OI, down_RI, up_OR, inner_NR = ctx.saved_tensors
        compute = inner_NR.dtype
        with torch.autocast(x_NI.device.type, enabled=False):
            grad_inner_NR = (grad_NO.to(compute) @ up_OR.to(compute)).mul_(ctx.scaling)
            grad_up_OR = (inner_NR.T @ grad_NO.to(compute)).T * ctx.scaling
            grad_down_RI = grad_inner_NR.T @ x_NI.to(compute)
            grad_x_NI = None
            if ctx.needs_input_grad[0]:
                grad_x_NI = grad_NO @ weight_OI.to(grad_NO.dtype)
                if compute == grad_x_NI.dtype:
                    grad_x_NI.addmm_(grad_inner_NR, down_RI.to(compute))
                else:
                    grad_x_NI = grad_x_NI.to(compute).addmm_(grad_inner_NR, down_RI).to(grad_x_NI.dtype)
        return grad_x_NI, None, None, grad_down_RI.to(down_RI.dtype), grad_up_OR.to(up_OR.dtype), None, None


def _norm_forward(module: nn.Module) -> Callable:
    return lambda x: _Norm.apply(x, module.weight, module.variance_epsilon)


class _Norm(torch.autograd.Function):
    """weight * (x / rms(x)); the frozen weight gets no gradient. Inside in float32 or wider, rounded as transformers rounds."""

    @staticmethod
    def forward(ctx, x, weight, epsilon: float):
        wide = torch.promote_types(x.dtype, torch.float32)
        mean_square = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=wide).square_().div_(x.shape[-1])
        inverse = mean_square.add_(epsilon).rsqrt_()
        ctx.save_for_backward(x, weight, inverse)
        return (x * inverse).to(x.dtype) * weight

    @staticmethod
    def backward(ctx, grad):
        x, weight, inverse = ctx.saved_tensors
        unit = x * inverse
        grad = grad * weight.to(inverse.dtype)
        along = (grad * unit).mean(-1, keepdim=True)
        return grad.sub_(unit.mul_(along)).mul_(inverse).to(x.dtype), None, None


def _gated_forward(module: nn.Module) -> Callable:
    return lambda x: module.down_proj(_Gate.apply(module.gate_proj(x), module.up_proj(x)))


class _Gate(torch.autograd.Function):
    """silu(gate) * up, keeping the two and not silu(gate)."""

    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        return silu(gate).mul_(up)

    @staticmethod
    def backward(ctx, grad):
        gate, up = ctx.saved_tensors
        grad_up = silu(gate).mul_(grad)
        return torch.ops.aten.silu_backward(grad * up, gate), grad_up
