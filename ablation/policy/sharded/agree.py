"""Whether processes that did something together came to the same kind of end.

A refusal (a disk's error, say) that all of them meet is an answer, and they go on. One that a part of them meets ends them all:
the others hold something else by now, or wait for this one in the middle of a computation.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

ALONE_SECONDS = 30.0
"""A process that was refused waits so long for the others to come to an end, too."""


def agree(refused: Exception | None, group: Any, give_up: Callable[[Exception], None], seconds: float = ALONE_SECONDS) -> None:
    """Every process of `group` calls this when it is done, with what refused it.

    Raises `RuntimeError` in all of them if a part was refused. Where the others come to no end, the one that was refused calls
    `give_up`, which has to end the process: it cannot be reached otherwise while it waits for them.
    """
    import torch.distributed as dist

    words = None if refused is None else f"{type(refused).__name__}: {refused}"
    waits = None
    if refused is not None:
        waits = threading.Timer(seconds, give_up, [_alone(dist.get_rank(group), words)])
        waits.daemon = True
        waits.start()
    told: list[str | None] = [None] * dist.get_world_size(group)
    dist.all_gather_object(told, words, group=group)
    if waits is not None:
        waits.cancel()
    ranks = [rank for rank, one in enumerate(told) if one is not None]
    if ranks and len(ranks) < len(told):
        raise _alone(ranks[0], told[ranks[0]])


def _alone(rank: int, words: str | None) -> RuntimeError:
    return RuntimeError(f"process {rank} was refused and others were not: {words}")
