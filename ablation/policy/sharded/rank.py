"""The local policy as one process of several: each holds a part of every weight, and computes some of the rows.

All processes of the group make every call together, with the same arguments, and all of them return the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from peft import PeftModel
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial

from ablation.errors import AblationError
from ablation.plan.model import Plan
from ablation.plan.model_files import OPTIMIZER_FILE
from ablation.policy.base import Progress, SampledTokens, SampleRequest, TrainRow
from ablation.policy.decoding import Decoding, decode
from ablation.policy.local import LocalPolicy
from ablation.policy.optimizer import moments, save_moments
from ablation.policy.sharded.dealing import deal
from ablation.policy.sharded.loading import divide, fill, second_name_of_tied_weight, without_weights
from ablation.policy.sharded.whole import (
    digest_of,
    divided_like,
    finite_everywhere,
    gathered,
    gradient_norm,
    wholes,
)


class RankPolicy(LocalPolicy):
    """One process's part of a policy that several hold together."""

    def __init__(
        self,
        plan: Plan,
        base: Path,
        start_adapter: Path,
        end_ids: tuple[int, ...],
        pad_id: int,
        dtype: torch.dtype | None = None,
        *,
        mesh: DeviceMesh,
        control: dist.ProcessGroup,
    ) -> None:
        """`mesh`: all processes, in one dimension, as FSDP takes it. `control`: the same ones, for what is on the CPU."""
        self.mesh, self.control = mesh, control
        self.rank, self.processes = mesh.get_local_rank(), mesh.size()
        super().__init__(plan, base, start_adapter, end_ids, pad_id, dtype)

    def _load_model(self, base: Path, dtype: torch.dtype | None) -> PeftModel:
        def load() -> PeftModel:
            model = self._light(without_weights(self.plan, base, self.start_adapter, dtype))
            divide(model, self.mesh)
            fill(model, base, self.start_adapter, self.device)
            return model

        return self._agreed(load)

    def _agreed(self, work: Callable[[], Any]) -> Any:
        """What one process cannot read none goes on with: the others would wait for it."""
        found = error = None
        try:
            found = work()
        except (AblationError, OSError) as refused:
            error = refused
        for one in gathered(error, self.control):
            if one is not None:
                raise one
        return found

    def _load_moments(self, path: Path | None) -> None:
        self._agreed(lambda: super(RankPolicy, self)._load_moments(path))
        for weight, state in self.optimizer.state.items():
            for field, value in state.items():
                if field != "step":
                    state[field] = divided_like(value, weight)

    def decode(self, requests: list[SampleRequest], how: Decoding, progress: Progress | None = None) -> list[SampledTokens]:
        """Every process samples all of the batch, so that it is the batch, and the tokens, of a single process."""
        # Weights that are gathered in inference mode could not be trained on afterwards.
        return decode(self.next_token_logits, self.layers, requests, how, self.device, progress, torch.no_grad)

    def _in_passes(self, rows: list, work: Callable[[list], Any]) -> Iterator[tuple[list[int], Any]]:
        """As of one process. A pass is made together: whoever has nothing to do in it works on a made-up row, for nothing."""
        spare = TrainRow((0,), np.zeros(1, dtype=np.int64), np.zeros(1), np.zeros(1))
        own = []
        for dealt in deal(rows, self.plan.training.micro_batch_tokens, self.processes, share=self.packs):
            batch = dealt[self.rank]
            found = work([rows[index] for index in batch] or [spare])
            if batch:
                own.append((batch, found))
        for found in gathered(own, self.control):
            yield from found

    @contextmanager
    def _whole_head(self) -> Iterator[Callable]:
        """The head gathered once: it is called as often as this process's rows need, other processes' rows other times."""
        head = self._head
        head.unshard()
        try:
            yield head.forward  # without FSDP's hooks
            grads = {name: weight.grad for name, weight in head.named_parameters() if weight.grad is not None}
            for weight in head.parameters():
                weight.grad = None
        finally:
            head.reshard()
        for name, weight in head.named_parameters():  # the divided ones are there again
            if weight.requires_grad and torch.is_grad_enabled():
                self._add_gradient(weight, grads.get(name))

    def _add_gradient(self, weight: DTensor, grad: torch.Tensor | None) -> None:
        """Add the sum over processes of a whole gradient; None: this process's is zero."""
        grad = torch.zeros(weight.shape, dtype=weight.dtype, device=weight.device) if grad is None else grad
        summed = DTensor.from_local(grad, self.mesh, [Partial("sum")], run_check=False).redistribute(self.mesh, weight.placements)
        weight.grad = summed if weight.grad is None else weight.grad + summed

    def _through_layers(self, hidden_UD: torch.Tensor, grad_UD: torch.Tensor | None) -> None:
        """Also without a gradient: the layers are gathered, and gradients summed, by all together."""
        hidden_UD.backward(torch.zeros_like(hidden_UD) if grad_UD is None else grad_UD)

    def _gradient_norm(self, weights: dict[str, torch.Tensor]) -> float:
        return gradient_norm(weights.values(), self.control)

    def _all_finite(self, tensors: Iterable[torch.Tensor]) -> bool:
        return finite_everywhere(tensors, self.control)

    def _save(self, folder: Path) -> None:
        self._save_adapter(folder)
        state = list(moments(self.optimizer, self.trainable))
        kept = list(wholes(state, keep=self.rank == 0))
        if self.rank == 0:
            save_moments(kept, folder / OPTIMIZER_FILE)

    def _save_adapter(self, folder: Path) -> None:
        state = dict(wholes(self.trainable.items(), keep=self.rank == 0))
        if self.rank == 0:
            super()._save_adapter(folder, state_dict=state)

    @torch.no_grad()
    def set_weights(self, weights: dict[str, torch.Tensor]) -> None:
        """From divided tensors, or from whole ones that every process has."""
        for name, weight in self.trainable.items():
            value = weights[name]
            weight.copy_(value if isinstance(value, DTensor) else divided_like(value, weight))

    def _base_digest(self) -> str:
        weights = sorted(self.model.named_parameters())
        twice = second_name_of_tied_weight(self.model)
        return self._digest({name: weight for name, weight in weights if name not in self.trainable and name != twice})

    def _digest(self, tensors: dict[str, torch.Tensor]) -> str:
        return digest_of(tensors.items(), self.control)
