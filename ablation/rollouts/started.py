"""How a run was started, from its journal: for printed commands that go on with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ablation.plan.choose import machine_options


def options_of_start(events: Sequence[Mapping[str, Any]]) -> str:
    """What of a machine the newest start of the run was told, as options for `ablation run` and `ablation evaluate`."""
    loaded = next((event for event in reversed(events) if event.get("event") == "model_loaded"), {})
    machine, processes = loaded.get("machine", {"turns": "auto"}), loaded.get("processes")
    if not isinstance(machine, Mapping):
        return ""
    count = processes.get("count", 1) if isinstance(processes, Mapping) else machine.get("processes", 1)
    return machine_options({**machine, "processes": count})
