"""One side of the comparison of merges: `python -m tests.bench.merge_side make|ours|peft FOLDER [JSON]`, which prints one JSON object."""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path

import torch

from .made_up import made_up_policy
from .memory_side import resident


def make(folder: Path, model: dict) -> dict[str, float]:
    made_up_policy(folder, **model)
    return {"bytes": float(sum(path.stat().st_size for path in (folder / "base").glob("*.safetensors")))}


def ours(folder: Path, to: Path) -> None:
    from ablation.merge.base_files import read_base
    from ablation.merge.pairs import read_adapter
    from ablation.merge.write import write_merged

    base = read_base(folder / "base")
    write_merged(base, read_adapter(folder / "adapter", base), to)


def peft(folder: Path, to: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(folder / "base", dtype=torch.bfloat16)
    PeftModel.from_pretrained(base, str(folder / "adapter")).merge_and_unload().save_pretrained(to)


def measured(who: str, folder: Path) -> dict[str, float]:
    import transformers  # noqa: F401  what both sides import is no part of it
    from peft import PeftModel  # noqa: F401

    to = folder / who
    to.mkdir()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
    before, started = resident("VmRSS"), time.process_time()
    {"ours": ours, "peft": peft}[who](folder, to)
    found = {"seconds": time.process_time() - started, "beyond": float(resident("VmHWM") - before)}
    shutil.rmtree(to)
    return found


if __name__ == "__main__":
    who, folder, *rest = sys.argv[1:]
    print(json.dumps(make(Path(folder), json.loads(rest[0])) if who == "make" else measured(who, Path(folder))))
