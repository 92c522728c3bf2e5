"""What of a machine a command is told and a plan is not, as it cannot change a result: recorded in the journal, never locked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from ablation.errors import UsageError
from ablation.plan.engines import Policy

Turns = Literal["auto", "together", "restart", "sleep"]
TURNS: tuple[str, ...] = get_args(Turns)
SERVER_KEY = "ABLATION_VLLM_SERVER_KEY"
"""Only the environment names the key, so that it stands in no shell history, process list or journal."""
_VARIABLES = {"turns": "ABLATION_TURNS", "server": "ABLATION_VLLM_SERVER", "server_folder": "ABLATION_VLLM_SERVER_FOLDER"}
_PROCESSES = "ABLATION_PROCESSES"
MOST_PROCESSES = 4096
"""No model is divided over more; a number that is a slip is refused before memory runs out."""


@dataclass(frozen=True)
class Machine:
    """How trainer and sampling engine share a device, where a sampling server is, over how many processes the trainer is divided.

    `turns`: `together` keeps both in memory, `restart` ends the engine while the trainer works, `sleep` has it give its memory
    back meanwhile, `auto` takes the quickest of them that fits. `server_folder`: a folder that a server reads adapters from.
    """

    turns: Turns = "auto"
    server: str | None = None
    server_folder: Path | None = None
    processes: int = 1

    def record(self) -> dict[str, Any]:
        """For the journal: no name or password of an address."""
        folder = None if self.server_folder is None else str(self.server_folder)
        return {
            "turns": self.turns,
            "server": None if self.server is None else without_password(self.server),
            "server_folder": folder,
            "processes": self.processes,
        }


DEFAULT = Machine()


def this_machine(
    policy: Policy,
    turns: str | None = None,
    server: str | None = None,
    server_folder: Path | None = None,
    processes: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> Machine:
    """What the options of a command say, else the environment, else the defaults.

    Raises `UsageError` naming the option or variable whose value cannot be, an option that `policy` has no use for, and the
    missing address of a server that it needs.
    """
    found = os.environ if environment is None else environment
    given = {"turns": turns, "server": server, "server_folder": None if server_folder is None else str(server_folder)}
    at_server = policy.vllm is not None and policy.vllm.engine == "server"
    if policy.vllm is None and turns is not None:
        raise UsageError(f"--turns: the plan's `policy.backend` is `{policy.backend}`: there is no engine to take turns with")
    if at_server and turns is not None:
        raise UsageError("--turns: the plan samples from a server, which this command neither starts nor ends")
    if not at_server and (server is not None or server_folder is not None):
        option = "--server" if server is not None else "--server-folder"
        raise UsageError(
            f"{option}: the plan samples from no server; that is `policy: {{backend: vllm, vllm: {{engine: server}}}}`"
        )
    names, values = {}, {}
    for name, option in given.items():
        variable = _VARIABLES[name]
        names[name] = f"--{name.replace('_', '-')}" if option is not None else variable
        values[name] = option if option is not None else found.get(variable) or None
    chosen = values["turns"] or "auto"
    if chosen not in TURNS:
        raise UsageError(f"{names['turns']}: found `{chosen}`; it is one of {', '.join(TURNS)}")
    if policy.vllm is None:
        chosen = "auto"  # the variable may be there for runs that have an engine
    count = _processes(policy, processes, found.get(_PROCESSES) or None)
    if not at_server:
        return Machine(chosen, processes=count)  # type: ignore[arg-type]
    if values["server"] is None:
        raise UsageError(
            "the plan samples from a vLLM server: say where it is",
            hint="--server http://HOST:PORT, or ABLATION_VLLM_SERVER.",
        )
    check_address(names["server"], values["server"])
    folder = values["server_folder"]
    if folder is not None and not Path(folder).is_dir():
        raise UsageError(f"{names['server_folder']}: {folder} is no folder", hint="The server must see it under the same path.")
    return Machine(chosen, values["server"], None if folder is None else Path(folder).resolve(), count)  # type: ignore[arg-type]


def _processes(policy: Policy, option: int | None, variable: str | None) -> int:
    """Over how many the trainer is divided: nothing of it is here with a service that trains."""
    here = policy.backend in ("local", "vllm")
    if option is not None and not here:
        raise UsageError(f"--processes: the plan's `policy.backend` is `{policy.backend}`, which does not train on this machine")
    if not here:
        return 1
    name, value = (_PROCESSES, variable) if option is None else ("--processes", str(option))
    if value is None:
        return 1
    if not value.isascii() or not value.isdigit() or len(value) > 9 or not 1 <= int(value) <= MOST_PROCESSES:
        raise UsageError(f"{name}: found `{value[:40]}`; it is a number of processes, from 1 to {MOST_PROCESSES}")
    return int(value)


def check_address(name: str, address: str, key: str = SERVER_KEY) -> None:
    """Raise `UsageError` unless it is the address of a server, and has no name or password in it. `key`: where a key goes."""
    try:
        parts = urlsplit(address)
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
        (parts.hostname or "").encode("idna")  # as whoever connects does
        right = right and not (parts.query or parts.fragment) and address.isprintable() and " " not in address
    except ValueError:  # a UnicodeError is one
        right = False
    if not right:
        shown = without_password(address).partition("?")[0]  # what is behind it may be a key
        raise UsageError(f"{name}: found `{shown}`; an address such as http://127.0.0.1:8000 is needed")
    if parts.username is not None or parts.password is not None:
        raise UsageError(f"{name}: the address has a name or a password in it", hint=f"A key goes into {key}.")


def without_password(address: str) -> str:
    """The address for a message or a record."""
    head, at, tail = address.rpartition("@")
    return f"{head.split('://')[0]}://...@{tail}" if at else address
