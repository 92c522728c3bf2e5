"""From hidden states to logprobs, entropy and gradient, with the logits of a few tokens at a time.

Memory does not grow with length x vocabulary: a chunk's logits are turned into what is wanted from them, gradient
included, before the next chunk's are made. Shapes: U scored hidden states, D hidden size, K scored tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from ablation.policy.packing import Packed

LOGITS_AT_ONCE = {"cpu": 2**24, "cuda": 2**26}
"""Elements of the logits that exist at one time; beside them, as many in the dtype of the result on a GPU."""
ROWS_AT_ONCE = 2**20
"""Elements that a CPU takes through one softmax: they stay in its cache from the maximum to the last exponential."""


@dataclass(frozen=True)
class Chunk:
    """The scored tokens of one chunk of hidden states."""

    order: torch.Tensor  # which scored tokens these are
    logprobs: torch.Tensor  # nats, float32 or wider
    top_entropy: torch.Tensor | None  # nats, of the renormalized most likely tokens
    _predictor: torch.Tensor
    _targets: torch.Tensor
    _logits: torch.Tensor  # holds the probabilities where a gradient is wanted

    def backward(self, grad: torch.Tensor) -> None:
        """Send d loss / d logprobs back through the head: d logits = grad of the token - its sum x probabilities."""
        with torch.no_grad():
            total_U = grad.new_zeros(self._logits.shape[0]).index_add_(0, self._predictor, grad)
            probabilities_UV = self._logits.detach()
            grad_UV = probabilities_UV.mul_(-total_U.unsqueeze(-1).to(probabilities_UV.dtype))
            grad_UV.index_put_((self._predictor, self._targets), grad.to(grad_UV.dtype), accumulate=True)
        self._logits.backward(grad_UV)


def chunks(
    head: Callable, hidden_UD: torch.Tensor, packed: Packed, vocabulary: int, *, top: int = 0, gradient: bool = False
) -> Iterator[Chunk]:
    """The scored tokens chunk by chunk. `top` asks for the entropy of that many most likely tokens.

    With `gradient`, `hidden_UD` must be a leaf that requires one: `Chunk.backward` adds to it and to the head's adapter.
    """
    order = torch.argsort(packed.predictor_K, stable=True)
    predictor_K, targets_K = packed.predictor_K[order], packed.targets_K[order]
    size = max(1, LOGITS_AT_ONCE.get(hidden_UD.device.type, LOGITS_AT_ONCE["cpu"]) // vocabulary)
    for start in range(0, len(hidden_UD), size):
        stop = min(start + size, len(hidden_UD))
        first, last = torch.searchsorted(predictor_K, torch.tensor([start, stop], device=predictor_K.device)).tolist()
        with torch.set_grad_enabled(gradient):
            logits_UV = head(hidden_UD[start:stop])
        at, target = predictor_K[first:last] - start, targets_K[first:last]
        with torch.no_grad():
            wide = torch.promote_types(logits_UV.dtype, torch.float32)
            chosen = logits_UV.detach()[at, target].to(wide)
            log_total_U, entropy_U = _totals(logits_UV.detach(), top, in_place=gradient)
            logprobs = chosen - log_total_U[at]
        entropy = None if entropy_U is None else entropy_U[at]
        yield Chunk(order[first:last], logprobs, entropy, at, target, logits_UV)
        del logits_UV


def _totals(logits_UV: torch.Tensor, top: int, *, in_place: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
    """log sum exp of each row and the entropy of its `top` most likely tokens; `in_place` leaves the probabilities behind."""
    count, vocabulary = logits_UV.shape
    rows = count if logits_UV.device.type != "cpu" else max(1, ROWS_AT_ONCE // vocabulary)
    wide = torch.promote_types(logits_UV.dtype, torch.float32)
    buffer = torch.empty(min(rows, count), vocabulary, dtype=wide, device=logits_UV.device)
    totals, entropies = [], []
    for start in range(0, count, rows):
        logits = logits_UV[start : start + rows]
        work = buffer[: len(logits)].copy_(logits)
        highest = largest(work, top) if top else work.amax(-1, keepdim=True)
        work.sub_(highest[:, :1]).exp_()
        total = work.sum(-1, keepdim=True)
        if in_place:
            torch.div(work, total, out=work)
            logits.copy_(work)
        log_total = total.log_().add_(highest[:, :1])
        totals.append(log_total.squeeze(-1))
        if top:
            entropies.append(entropy_of(highest - log_total))
    return torch.cat(totals), torch.cat(entropies) if top else None


def entropy_of(top_logprobs: torch.Tensor) -> torch.Tensor:
    """Entropy (nats) of the tokens in the last dimension, renormalized to probability 1 among themselves."""
    normal = top_logprobs - torch.logsumexp(top_logprobs, dim=-1, keepdim=True)
    return -(normal.exp() * normal).sum(-1)


def largest(values_UV: torch.Tensor, count: int) -> torch.Tensor:
    """The `count` largest of each row, in descending order; exactly those of `torch.topk`, in less time.

    They lie in at most `count` of the row's blocks, and those are the blocks with the largest maxima.
    """
    vocabulary = values_UV.shape[1]
    count = min(count, vocabulary)
    width = int((vocabulary / count) ** 0.5)
    blocks = vocabulary // max(width, 1)
    if blocks < 4 * count:
        return torch.topk(values_UV, count, dim=-1).values
    blocked = values_UV[:, : blocks * width].unflatten(1, (blocks, width))
    best = torch.topk(blocked.amax(-1), count, dim=-1, sorted=False).indices
    kept = blocked.gather(1, best.unsqueeze(-1).expand(-1, -1, width)).flatten(1)
    return torch.topk(torch.cat([kept, values_UV[:, blocks * width :]], dim=1), count, dim=-1).values
