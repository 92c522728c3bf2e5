"""One process of several: it joins the others, loads its part, and does with them what it is asked until it is told to end.

What is asked reaches the first process, from whoever started it, and goes from there to all. The first answers for all.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ablation.errors import AblationError
from ablation.plan.model import Plan
from ablation.policy.lasting import signal_at_end_of
from ablation.policy.sharded.agree import agree
from ablation.policy.sharded.pulse import Pulses

PULSE_SECONDS = 0.5
WAKE_SECONDS = 5.0
"""So often the first process tells the others that there is nothing to do: nobody then waits for longer than a group allows."""
GROUP_TIMEOUT = timedelta(minutes=30)
"""A process that waits so long for another gives up: each may take its time to read a large model. Whether the other lives at all
is seen long before, by the runner that started them (`group`) or by each other (`pulse`)."""
PROGRESS_SECONDS = 0.2
LOG, FAILURE = "process-{}.txt", "failure-{}.json"
"""What each process prints, and what of it failed, in the folder of its group."""
END, UNLOAD = "end", "unload"
DOES = frozenset(
    ("self_test", "reset", "sample", "score", "update", "save", "save_adapter", "load", "load_adapter", "adapter_sha256")
) | {"step_aside", "come_back", "keep_weights", "put_back_weights", "zero_weights", "made_up_weights", "logits"}
"""Methods of `rank.RankPolicy` that can be asked for."""


@dataclass(frozen=True)
class ToLoad:
    """The arguments of `LocalPolicy`; `dtype` by its name."""

    plan: Plan
    base: Path
    start_adapter: Path
    end_ids: tuple[int, ...]
    pad_id: int
    dtype: str | None = None


@dataclass(frozen=True)
class Loaded:
    """What the one who asks must know of the policy."""

    base_sha256: str
    context: int | None
    embeddings: int
    backend: str
    devices: list[str]


@dataclass(frozen=True)
class Told:
    """Before an answer: how far sampling is."""

    finished: int
    tokens: int


@dataclass(frozen=True)
class Lost:
    """Instead of an answer: why there will be none."""

    why: str


@dataclass(frozen=True)
class Answer:
    """`refused`: an error that the caller may be told as it is; the processes go on."""

    value: Any = None
    refused: AblationError | OSError | None = None


def start(rank: int, processes: int, folder: Path, pulses: Any, link: Connection) -> None:
    """The main function of a process that a runner on this machine starts. Never returns."""
    _end_with_parent()
    _give_memory_back()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the runner's
    log = os.open(folder / LOG.format(rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(log, stream)
    threading.Thread(target=_beat, args=(rank, pulses), daemon=True).start()
    if rank:
        link.close()
    _only_this_machine()

    def fail(error: BaseException) -> None:
        told = {"kind": type(error).__name__, "message": str(error), "at": time.monotonic()}
        (folder / FAILURE.format(rank)).write_text(json.dumps(told))
        give_up(error)

    try:
        serve(rank, processes, rank, f"file://{folder / 'store'}", link if rank == 0 else None, fail)
    except BaseException as error:
        fail(error)
    os._exit(0)


def give_up(error: BaseException) -> None:
    """End this process at once: the others may be waiting for it, so nothing that waits for them is tried."""
    traceback.print_exception(error)
    sys.stderr.flush()
    os._exit(1)


def serve(
    rank: int,
    processes: int,
    device: int,
    store: str,
    link: Connection | Shared | None,
    fail: Callable[[BaseException], None] = give_up,
    lost: Callable[[str], None] | None = None,
) -> None:
    """Join the group, load what is asked for and answer, until the end. `device`: the GPU, where there is one.

    `store`: an `init_method` of `torch.distributed`. `link`: to whoever asks; the first process's alone. `fail` ends the process,
    as does `lost`, if the processes are to watch each other.
    """
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    from ablation.policy.loading import free_memory

    gpus = torch.cuda.is_available()
    kind, backend = ("cuda", "nccl") if gpus else ("cpu", "gloo")
    if gpus:
        torch.cuda.set_device(device)
    own = {"device_id": torch.device("cuda", device)} if gpus else {}
    meeting, _, _ = next(dist.rendezvous(store, rank, processes, timeout=GROUP_TIMEOUT))
    dist.init_process_group(backend, store=meeting, rank=rank, world_size=processes, timeout=GROUP_TIMEOUT, **own)
    pulses = None if lost is None else Pulses(dist.PrefixStore("pulse", meeting.clone()), rank, processes, lost)
    control = dist.new_group(backend="gloo", timeout=GROUP_TIMEOUT)
    mesh = init_device_mesh(kind, (processes,))
    policy = None

    def load(what: ToLoad) -> Loaded:
        nonlocal policy
        from ablation.policy.sharded.rank import RankPolicy
        from ablation.policy.sharded.whole import gathered

        dtype = None if what.dtype is None else getattr(torch, what.dtype)
        arguments = (what.plan, what.base, what.start_adapter, what.end_ids, what.pad_id, dtype)
        policy = RankPolicy(*arguments, mesh=mesh, control=control)
        devices = gathered(torch.cuda.get_device_name(device) if gpus else "cpu", control)
        return Loaded(policy.base_sha256, policy.context, policy.embeddings, backend, devices)

    def do(name: str, arguments: tuple, options: dict[str, Any]) -> Any:
        assert name in DOES, name
        if name == "sample" and link is not None:
            options = options | {"progress": _progress(link)}
        return getattr(policy, name)(*arguments, **options)

    while True:
        box = [_next(link) if link is not None else None]
        dist.broadcast_object_list(box, group=control, group_src=0)
        asked = box[0]
        if asked == END:
            break
        if asked is None:
            continue
        if asked == UNLOAD or isinstance(asked, ToLoad):
            policy = None
            free_memory()
        work = partial(load, asked) if isinstance(asked, ToLoad) else partial(do, *asked) if asked != UNLOAD else None
        answer = Answer() if work is None else _attempt(work)
        agree(answer.refused, control, fail)
        if link is not None:
            link.send(answer)
    if pulses is not None:
        pulses.over()
    dist.barrier(group=control)  # nobody leaves while another still reads from it


class Shared:
    """A link that threads may send over."""

    def __init__(self, link: Connection) -> None:
        self.recv, self.poll = link.recv, link.poll
        self._link, self._lock = link, threading.Lock()

    def send(self, message: Any) -> None:
        with self._lock:
            self._link.send(message)


def _attempt(work: Callable[[], Any]) -> Answer:
    """What came of it. An error of the user's or of a disk is an answer, any other ends the process."""
    try:
        return Answer(work())
    except (AblationError, OSError) as error:
        return Answer(refused=error)


def _next(link: Connection | Shared) -> Any:
    """What is asked next; None if nothing was for a while; the end, too, if whoever asks is gone."""
    try:
        return link.recv() if link.poll(WAKE_SECONDS) else None
    except (EOFError, OSError):
        return END


def _progress(link: Connection | Shared) -> Callable[[int, int], None]:
    told = 0.0

    def tell(finished: int, tokens: int) -> None:
        nonlocal told
        if time.monotonic() - told >= PROGRESS_SECONDS:
            told = time.monotonic()
            link.send(Told(finished, tokens))

    return tell


def _beat(rank: int, pulses: Any) -> None:
    while True:
        pulses[rank] += 1
        time.sleep(PULSE_SECONDS)


def _end_with_parent() -> None:
    """Whoever started this process is gone, killed perhaps: then this one goes, whatever it waits for, stopped or not."""
    parent = multiprocessing.parent_process()
    assert parent is not None and parent.pid is not None
    signal_at_end_of(parent.pid)

    def watch() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def _only_this_machine() -> None:
    """Processes of one machine listen on its loopback interface alone."""
    import socket

    if any(name == "lo" for _, name in socket.if_nameindex()):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


def _give_memory_back() -> None:
    """What was gathered and let go again goes back to the system; glibc would soon keep such pieces on a heap full of holes."""
    M_MMAP_THRESHOLD, size = -3, 1_000_000
    with contextlib.suppress(AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, size)
