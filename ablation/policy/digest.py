"""The digest by which an adapter, or a base, is known."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch


def tensors_digest(tensors: Iterable[tuple[str, torch.Tensor]]) -> str:
    """SHA-256 over the names and bytes of `tensors`, in their order."""
    digest = hashlib.sha256()
    for name, tensor in tensors:
        digest.update(name.encode() + b"\0")
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy())
    return digest.hexdigest()
