"""What a preflight does to the policy that trains: other adapters for a while, and its bare logits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


class Probes:
    """Methods of `LocalPolicy`, which has what they use."""

    trainable: dict[str, torch.Tensor]

    def keep_weights(self) -> None:
        """Remember the adapter."""
        self._kept = {name: weight.detach().clone() for name, weight in self.trainable.items()}

    def put_back_weights(self) -> None:
        """The adapter that `keep_weights` remembers."""
        self.set_weights(self._kept)
        del self._kept

    def zero_weights(self) -> None:
        """An adapter of zeros: the base."""
        self.set_weights({name: torch.zeros_like(weight) for name, weight in self.trainable.items()})

    def made_up_weights(self, target: str, size: float) -> None:
        """Random numbers, the same every time, in the modules named `target`; zeros elsewhere."""
        generator = torch.Generator().manual_seed(13)
        weights = {}
        for name, weight in self.trainable.items():
            weights[name] = torch.zeros(weight.shape, dtype=weight.dtype, device=weight.device)
            if f".{target}." in name:
                weights[name] += torch.randn(weight.shape, generator=generator).to(weights[name]) * size
        self.set_weights(weights)

    @torch.no_grad()
    def logits(self, ids: list[int], start: int) -> np.ndarray:
        """Float64 [T, V]: what the model's own forward pass says of each of `ids` from `start` on, before it is seen."""
        logits_TV = self.causal(input_ids=torch.tensor([ids], device=self.device), use_cache=False).logits[0, start - 1 : -1]
        return logits_TV.double().cpu().numpy()

    @property
    def embeddings(self) -> int:
        """Rows of the embedding: ids are below it."""
        return self.causal.get_input_embeddings().num_embeddings


@contextmanager
def weights_kept(policy: Probes) -> Iterator[None]:
    """Whatever is done to the adapter meanwhile, it is as it was afterwards."""
    policy.keep_weights()
    try:
        yield
    finally:
        policy.put_back_weights()
