"""LoRA on vLLM's CPU build as two matrix products, where all tokens of a step have the same adapter.

vLLM's own way there copies the adapter's weights once for every token, because tokens may have different adapters. Here they
never do, and with a model of 135M parameters those copies take most of the engine's time. A step with several adapters goes
vLLM's way.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU
from vllm.platforms import current_platform


def install() -> None:
    """Make engines that this process starts later compute so. Does nothing where vLLM is not the CPU build."""
    if current_platform.is_cpu():
        type(current_platform).get_punica_wrapper = classmethod(lambda cls: f"{__name__}.{OneAdapter.__name__}")


class OneAdapter(PunicaWrapperCPU):
    """As its base, and quick where it can be. Products and their sum are float32, as in vLLM's kernels for GPUs."""

    _one: int | None = None
    """Slot of the adapter that all tokens of the step have, -1 for none; None if they differ."""

    def update_metadata(self, *arguments: Any, **options: Any) -> None:
        super().update_metadata(*arguments, **options)
        self._one = int(self._lora_indices_per_batch[0]) if self.is_prefill and self.batch_size == 1 else None

    def add_lora_linear(self, y, x, lora_a_stacked, lora_b_stacked, scale, output_slices, *, buffer=None, **kwargs) -> None:
        """y (..., O) += scale * x (..., I) @ A^T (I, r) @ B^T (r, O), in place and slice by slice of O."""
        if self._one is None:
            super().add_lora_linear(y, x, lora_a_stacked, lora_b_stacked, scale, output_slices, buffer=buffer, **kwargs)
        elif self._one >= 0:
            y_TO, x_TI = y.view(-1, y.shape[-1]), x.view(-1, x.shape[-1]).float()
            for part_TO, a, b in zip(y_TO.split(output_slices, dim=1), lora_a_stacked, lora_b_stacked, strict=True):
                _add(part_TO, x_TI, a[self._one, 0], b[self._one, 0], scale)

    def add_lora_logits(self, y, x, lora_a_stacked, lora_b_stacked, scale, *, buffer=None, **kwargs) -> None:
        """The same for the logits, y (T, V)."""
        if self._one is None:
            super().add_lora_logits(y, x, lora_a_stacked, lora_b_stacked, scale, buffer=buffer, **kwargs)
        elif self._one >= 0:
            rows = y.view(-1, y.shape[-1])
            b_Vr = lora_b_stacked[self._one, 0]
            width = min(len(b_Vr), rows.shape[1])  # adapter and model may pad the vocabulary differently
            _add(rows[:, :width], x.view(-1, x.shape[-1]).float(), lora_a_stacked[self._one, 0], b_Vr[:width], scale)


def _add(y_TO: torch.Tensor, x_TI: torch.Tensor, a_rI: torch.Tensor, b_Or: torch.Tensor, scale: float) -> None:
    hidden_Tr = (x_TI @ a_rI.float().T) * scale
    y_TO.copy_(torch.addmm(y_TO.float(), hidden_Tr, b_Or.float().T))
