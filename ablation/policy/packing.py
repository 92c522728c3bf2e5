"""Rows of tokens as the one sequence of their distinct prefixes, so that nothing is computed twice and nothing is padding.

Under a causal mask a token's hidden state depends on the tokens before it alone. So rollouts with the same prompt share
the prompt's tokens, and rollouts that begin alike share their beginning: each distinct prefix is one packed token (a node of
the prefix tree), and a row is a path of nodes. Only attention looks along paths (`attention`).
Shapes: N packed tokens, K scored tokens (of all rows, row after row), B rows of an attention block, L tokens of its longest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ablation.policy.base import ScoreRow

WASTE = 1.25
"""An attention block may hold this many padded tokens for each real one."""
BLOCK_TOKENS = {"cpu": 2048, "cuda": 2**16}
"""Padded tokens of an attention block, unless a single row is longer: its scores stay in a CPU's cache; a GPU wants few calls."""

Wanted = Sequence[np.ndarray] | None


@dataclass(frozen=True)
class Block:
    """Some rows of nearly one length, padded on the right to attend together."""

    tokens_BL: torch.Tensor  # the packed token at each place; padding repeats the row's first
    owned: torch.Tensor  # places (of B * L) whose output is wanted here: each packed token is owned once over all blocks
    owned_tokens: torch.Tensor  # the packed token at each of those places
    owned_queries: torch.Tensor  # the same places where each row begins with the first token that it owns (of B * Q)
    first_B: torch.Tensor  # the place of that token: what a row owns is its end, as beginnings are shared
    queries: int  # Q, the most tokens that a row owns


@dataclass(frozen=True)
class Packed:
    """What a model is given to score some rows. Without `blocks` the rows are padded on the right instead, one by one."""

    ids: torch.Tensor  # [1, N], or [B, L] where rows are padded
    positions: torch.Tensor  # of the shape of `ids`
    blocks: list[Block] | None
    scored_U: torch.Tensor  # the tokens (flat places in `ids`) that predict something, each once
    predictor_K: torch.Tensor  # which of those predicts each scored token
    targets_K: torch.Tensor  # the scored tokens

    @property
    def count(self) -> int:
        """Scored tokens."""
        return len(self.targets_K)


def micro_batches(rows: Sequence[ScoreRow], tokens: int, *, share: bool) -> Iterator[list[int]]:
    """Indices of `rows` in batches of at most `tokens` tokens in one pass (a longer row goes alone).

    With `share` a beginning that rows have in common counts once, and rows with the most in common go together; without it
    rows of like length go together, and padding counts. Nothing here depends on the order of `rows`.
    """
    sequences = [_sequence(row) for row in rows]
    keys = [_bytes(sequence) for sequence in sequences]
    order = sorted(range(len(rows)), key=lambda index: keys[index] if share else (-len(keys[index]), keys[index]))
    batch: list[int] = []
    used = 0
    for index in order:
        whole = len(sequences[index])
        if share:
            more = whole - (_common(sequences[batch[-1]], sequences[index]) if batch else 0)
        else:
            more = len(sequences[batch[0]]) if batch else whole
        if batch and used + more > tokens:
            yield batch
            batch, used, more = [], 0, whole
        batch.append(index)
        used += more
    if batch:
        yield batch


def pack(rows: Sequence[ScoreRow], device: torch.device, wanted: Wanted = None) -> Packed:
    """The rows as one packed sequence, common beginnings once.

    `wanted` says of each row's tokens which are scored (bool; None: all).
    """
    sequences = [_sequence(row) for row in rows]
    paths: list[np.ndarray] = [np.zeros(0, dtype=np.int64)] * len(rows)
    ids, positions, before, count = [], [], None, 0
    for index in sorted(range(len(rows)), key=lambda index: _bytes(sequences[index])):
        own = sequences[index]
        shared = 0 if before is None else _common(sequences[before], own)
        new = len(own) - shared
        kept = paths[before][:shared] if before is not None else paths[index]
        paths[index] = np.concatenate([kept, np.arange(count, count + new)])
        ids.append(own[shared:])
        positions.append(np.arange(shared, len(own)))
        before, count = index, count + new
    return _packed(
        rows,
        wanted,
        paths,
        torch.from_numpy(np.concatenate(ids))[None].to(device),
        torch.from_numpy(np.concatenate(positions))[None].to(device),
        _blocks(paths, count, device),
        device,
    )


def pad(rows: Sequence[ScoreRow], device: torch.device, wanted: Wanted = None) -> Packed:
    """As `pack`, with the rows padded on the right, for models whose layers mix tokens by more than plain causal attention.

    Nothing attends to what comes later, so padding needs no mask; it is never found by the value of an id.
    """
    sequences = [_sequence(row) for row in rows]
    width = max(map(len, sequences))
    ids_BL = np.zeros((len(rows), width), dtype=np.int64)
    for index, sequence in enumerate(sequences):
        ids_BL[index, : len(sequence)] = sequence
    positions_BL = np.broadcast_to(np.arange(width), ids_BL.shape).copy()
    paths = [index * width + np.arange(len(sequence)) for index, sequence in enumerate(sequences)]
    ids, positions = (torch.from_numpy(array).to(device) for array in (ids_BL, positions_BL))
    return _packed(rows, wanted, paths, ids, positions, None, device)


def _packed(rows, wanted, paths, ids, positions, blocks, device) -> Packed:
    # A token is predicted at the place before it.
    predictors = [path[len(row.prompt_ids) - 1 : -1] for row, path in zip(rows, paths, strict=True)]
    targets = [np.asarray(row.token_ids, dtype=np.int64) for row in rows]
    if wanted is not None:
        predictors, targets = ([one[mask] for one, mask in zip(ones, wanted, strict=True)] for ones in (predictors, targets))
    targets_K = np.concatenate(targets)
    scored_U, predictor_K = np.unique(np.concatenate(predictors), return_inverse=True)
    tensors = (torch.from_numpy(array).to(device) for array in (scored_U, predictor_K, targets_K))
    return Packed(ids, positions, blocks, *tensors)


def _blocks(paths: list[np.ndarray], count: int, device: torch.device) -> list[Block]:
    """Rows of like length together, longest first; a row all of whose tokens are owned already has nothing to attend for."""
    most = BLOCK_TOKENS.get(device.type, BLOCK_TOKENS["cpu"])
    taken = np.zeros(count, dtype=bool)
    blocks: list[Block] = []
    members: list[np.ndarray] = []  # paths of the block that is being filled
    owned: list[np.ndarray] = []  # and the places that each of them owns
    for path in sorted(paths, key=lambda path: (-len(path), path.tolist())):
        new = np.flatnonzero(~taken[path])
        if not len(new):
            continue
        taken[path] = True
        padded = len(members[0]) * (len(members) + 1) if members else 0
        if members and (padded > most or padded > WASTE * (sum(map(len, members)) + len(path))):
            blocks.append(_block(members, owned, device))
            members, owned = [], []
        members.append(path)
        owned.append(new)
    blocks.append(_block(members, owned, device))
    return blocks


def _block(paths: list[np.ndarray], owned: list[np.ndarray], device: torch.device) -> Block:
    width = len(paths[0])
    tokens_BL = np.repeat([[path[0]] for path in paths], width, axis=1)
    for row, path in enumerate(paths):
        tokens_BL[row, : len(path)] = path
    places = np.concatenate([row * width + new for row, new in enumerate(owned)])
    first_B, queries = np.array([new[0] for new in owned]), max(map(len, owned))
    query_places = np.concatenate([row * queries + np.arange(len(new)) for row, new in enumerate(owned)])
    arrays = (tokens_BL, places, tokens_BL.flatten()[places], query_places, first_B)
    return Block(*(torch.from_numpy(array).to(device) for array in arrays), queries)


def _sequence(row: ScoreRow) -> np.ndarray:
    return np.concatenate([np.asarray(row.prompt_ids, dtype=np.int64), np.asarray(row.token_ids, dtype=np.int64)])


def _bytes(sequence: np.ndarray) -> bytes:
    """A key that sorts as the ids do."""
    return sequence.astype(">u4").tobytes()


def _common(one: np.ndarray, other: np.ndarray) -> int:
    """Length of the common beginning."""
    length = min(len(one), len(other))
    differs = one[:length] != other[:length]
    return int(differs.argmax()) if differs.any() else length
