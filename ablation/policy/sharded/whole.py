"""Between a tensor that is divided over processes and the same one whole. All processes of the group call these together.

A divided tensor is a `DTensor` whose first dimension is cut into as many pieces as there are processes, as FSDP cuts it: all of
one size, but for the last ones, which may be shorter or empty.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from ablation.policy.digest import tensors_digest
from ablation.policy.optimizer import all_finite


def own_rows(rows: int, rank: int, processes: int) -> slice:
    """Those that process `rank` holds of a tensor with so many."""
    each = -(-rows // processes)
    start = min(rows, rank * each)
    return slice(start, min(rows, start + each))


def local(tensor: torch.Tensor) -> torch.Tensor:
    """What this process holds of it."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """All of it, on every process."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def divided_like(tensor: torch.Tensor, example: DTensor) -> DTensor:
    """A tensor that every process has whole, divided as `example` is. Nothing is sent."""
    rows = own_rows(len(tensor), example.device_mesh.get_local_rank(), example.device_mesh.size())
    piece = tensor[rows].to(example.device, example.dtype).clone()
    return DTensor.from_local(
        piece, example.device_mesh, example.placements, run_check=False, shape=example.shape, stride=example.stride()
    )


def wholes(tensors: Iterable[tuple[str, torch.Tensor]], *, keep: bool) -> Iterator[tuple[str, torch.Tensor]]:
    """Each tensor whole, one at a time; on the CPU, and only where `keep` says so."""
    for name, tensor in tensors:
        found = whole(tensor.detach())
        if keep:
            yield name, found.cpu()


def digest_of(tensors: Iterable[tuple[str, torch.Tensor]], control: dist.ProcessGroup) -> str:
    """`tensors_digest` of the whole tensors."""
    first = dist.get_rank(control) == 0
    found = [tensors_digest(wholes(tensors, keep=first))]  # of nothing, but on the first
    dist.broadcast_object_list(found, group=control, group_src=0)
    return found[0]


def gradient_norm(weights: Iterable[torch.Tensor], control: dist.ProcessGroup) -> float:
    """The norm of all gradients together, in float64; NaN if there is none."""
    grads = [local(weight.grad) for weight in weights if weight.grad is not None]
    if not grads:
        return math.nan
    squares = torch.stack([torch.linalg.vector_norm(grad, dtype=torch.float64).square() for grad in grads]).sum().cpu()
    dist.all_reduce(squares, group=control)
    return float(squares.sqrt())


def finite_everywhere(tensors: Iterable[torch.Tensor], control: dist.ProcessGroup) -> bool:
    """Whether no tensor holds an infinity or a NaN, on any process."""
    bad = torch.tensor(0 if all_finite(map(local, tensors)) else 1)
    dist.all_reduce(bad, group=control)
    return not int(bad)


def gathered(own: object, control: dist.ProcessGroup) -> list:
    """What each process has, in their order, on all of them."""
    found = [None] * dist.get_world_size(control)
    dist.all_gather_object(found, own, group=control)
    return found
