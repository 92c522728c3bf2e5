"""Joining a Ray cluster: started for this command, or one that runs; and refusing it if it cannot do the work."""

from __future__ import annotations

import os
import platform
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from ablation.errors import UsageError
from ablation.plan.engines import Policy
from ablation.study.cluster.needs import Needs, Node, needs_of, places
from ablation.study.cluster.versions import differing, versions
from ablation.study.machine import Machine

CONNECT = 10.0
"""Seconds for a connection to an address."""
ANSWER = 40.0
"""Seconds in which what is there has to say that it is a Ray cluster: Ray's own patience has no end."""
WAIT = 60.0
"""Seconds in which a machine has to say what it has installed."""
_HERE, _AUTO = "local", "auto"
_TOKENS = "RAY_AUTH_MODE"


@dataclass(frozen=True)
class Cluster:
    """A cluster that this process has joined."""

    address: str
    head: str
    """HOST:PORT of its head."""
    nodes: list[Node]
    needs: Needs
    places: int
    """Units that it does at one time, as it is now."""

    def record(self) -> dict[str, Any]:
        """For the journal."""
        nodes = [{"node": one.id[:8], "host": one.host, "cpus": one.cpus, "gpus": one.gpus} for one in self.nodes]
        return {"ray": versions()["ray"], "nodes": nodes, "cpus": self.needs.cpus, "gpus": self.needs.gpus, "places": self.places}


def parse_on(text: str) -> str:
    """The address that `--on` names: `local` (a cluster of this machine for this command), `auto` or HOST:PORT.

    Raises `UsageError` for anything else, and where Ray is not installed.
    """
    kind, equals, address = text.partition("=")
    if kind != "ray" or (equals and not address):
        raise UsageError(
            f"--on: found `{text}`; it is `ray` (this machine's cores and GPUs), `ray=auto` (the cluster that runs here) or "
            "`ray=HOST:PORT`"
        )
    if address.startswith("ray://"):
        raise UsageError(
            f"--on: found `{text}`; a Ray client's address does not do: the journal's writer must be on a machine of the cluster",
            hint="Run this command on a machine of the cluster, with --on ray=auto.",
        )
    if address not in ("", _AUTO, _HERE):
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise UsageError(f"--on: found `{text}`; an address is HOST:PORT, such as 10.0.0.1:6379, or `auto`")
    if find_spec("ray") is None:
        raise UsageError("--on: needs Ray, which this install does not have", hint="pip install -e '.[ray]' on every machine.")
    return address or _HERE


@contextmanager
def joined(address: str, policy: Policy, machine: Machine, say: Callable[[str], None]) -> Iterator[Cluster]:
    """The cluster at `address` (see `parse_on`) until the block ends; one that was started here ends with it.

    Raises `UsageError` if it cannot be reached, cannot ever do the plan's work, or has machines with other versions.
    """
    _connect(address, say)
    import ray

    try:
        nodes = [Node.of(one) for one in ray.nodes() if one["Alive"]]
        needs = needs_of(policy, machine, nodes)
        cluster = Cluster(address, ray.get_runtime_context().gcs_address, nodes, needs, places(needs, nodes, policy))
        _check_versions([node for node in nodes if needs.places(node.cpus, node.gpus)])
        say(
            f"on {len(nodes)} machine{'s' if len(nodes) > 1 else ''} of a Ray cluster, {cluster.places} pieces of work at one "
            f"time ({needs.cpus} CPUs and {needs.gpus} GPUs each)"
        )
        yield cluster
    finally:
        ray.shutdown()


def _connect(address: str, say: Callable[[str], None]) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    options: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": "ERROR"}
    if address == _HERE:
        say("starting Ray on this machine")
        options["include_dashboard"] = False
    elif address != _AUTO:
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.removeprefix("[").removesuffix("]"), int(port)), timeout=CONNECT).close()
        except (OSError, UnicodeError) as error:  # the second for what cannot be a host's name
            raise _unreachable(address, str(error)) from None
    if address != _HERE:
        _ask_whether_there_is_one(address)
    import ray  # not before: it reads the environment

    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        ray.init(**options)
    except (ConnectionError, RuntimeError, ValueError, OSError, TimeoutError) as error:
        raise _unreachable(address, " ".join(str(error).split())[:300] or type(error).__name__) from None
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)  # Ray puts its own, which ends the process before anything is said


def _ask_whether_there_is_one(address: str) -> None:
    """Ray's own check, in a process that can be ended when it waits for too long.

    A cluster that wants a token is asked with the one of this user, which this process then has, too.
    """
    why = _fault_of(address, {})
    if why is not None and "InvalidAuthToken" in why and _TOKENS not in os.environ:
        with_token = {_TOKENS: "token"}
        again = _fault_of(address, with_token)
        if again is None:
            os.environ |= with_token
            return
        why = again if "InvalidAuthToken" in again else why
    if why is not None:
        raise _unreachable(address, why)


def _fault_of(address: str, more: dict[str, str]) -> str | None:
    """What is wrong with the cluster at `address`, in Ray's words; None if nothing is."""
    asked = [sys.executable, "-m", "ray.scripts.scripts", "health-check"]
    asked += [] if address == _AUTO else ["--address", address]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, timeout=ANSWER, check=False, env=os.environ | more)
    except subprocess.TimeoutExpired:
        return f"what is there does not answer as one within {ANSWER:g} s"
    if said.returncode == 0:
        return None
    lines = [line for line in said.stderr.splitlines() if line.strip()] or ["it is not healthy"]
    return (lines[-1].partition(": ")[2] or lines[-1])[:300]


def _unreachable(address: str, why: str) -> UsageError:
    hint = "`ray start --head` starts one, and `ray start --address HOST:PORT` has a machine join it."
    return UsageError(f"--on ray={address}: no Ray cluster could be joined: {why}", hint=hint)


def _check_versions(nodes: list[Node]) -> None:
    """Raise `UsageError` naming each machine that has another version of anything that is part of a run's record."""
    import ray
    from ray.exceptions import GetTimeoutError, RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    asked = ray.remote(num_cpus=0, max_retries=0)(_by_value())
    refs = [asked.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False)).remote() for node in nodes]
    problems = []
    for node, ref in zip(nodes, refs, strict=True):
        try:
            there = ray.get(ref, timeout=WAIT)
        except (GetTimeoutError, RayError) as error:
            problems.append(f"{node.host} does not answer: {type(error).__name__}")
            continue
        if isinstance(there, str):
            problems.append(f"{node.host} ({node.id[:8]}) cannot import this program: {there}")
        elif changed := differing(versions(), there):
            problems.append(f"{node.host} ({node.id[:8]}) has other versions than {platform.node()}: {'; '.join(changed)}")
    if problems:
        hint = "Versions are part of a run's record: install the same ones on every machine. Nothing was started."
        raise UsageError("\n".join(f"--on: {line}" for line in problems), hint=hint)


def _by_value() -> Callable[[], Any]:
    """A function that is sent as it is, for a machine that may not have this program."""

    def there() -> Any:
        try:
            from ablation.study.cluster.versions import versions as own
        except ImportError as error:
            return str(error)
        return own()

    return there
