"""Runs of the real command line in processes that are cheap to start, so that many of them can be killed.

The processes are forked from a server that has imported everything; each of them loads the model and works on the run folder as
`ablation run` does, and dies by a real SIGKILL.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

ARM = "XK"
COMMANDS = (["run", "--arm", ARM], ["run", "--arm", ARM, "--continue-to", "3"])
"""An arm with its readout, then one update and one check of its extension."""
UPDATES = (1, 2, 3)
IMPORTED = [
    "ablation.cli.main",
    "ablation.study.runner",
    "ablation.policy.local",
    "peft",
    "transformers.models.llama.modeling_llama",
]


def processes():
    """The context whose processes are forked from a server with all imports done."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    return context


def work(folder: Path) -> None:
    """Both commands, one after the other, as a user types them in `folder`; ends with the first exit code that is not 0."""
    from ablation.cli.main import main

    os.chdir(folder)
    with open(folder / "output.txt", "a") as sys.stderr:
        sys.stdout = sys.stderr
        for arguments in COMMANDS:
            sys.argv = ["ablation", *arguments]
            try:
                main()
            except SystemExit as ended:
                if ended.code:
                    os._exit(int(ended.code))
    os._exit(0)


def triggers(chance: random.Random) -> list[tuple[str, str, float]]:
    """Twenty moments in the order of the work: what must have appeared below the arm's family, what says that it is over, and
    for how many seconds after that the work goes on.
    """
    found = [("start/sweep/part-000.parquet", 0.0), ("start/sweep/part-001.parquet", chance.uniform(0, 0.2))]
    for k in UPDATES:
        update = f"{ARM}/update-{k}"
        found += [
            (f"{update}/part-000.parquet", chance.uniform(0, 0.2)),  # sampling
            (f"{update}/stage.json", chance.uniform(0, 0.05)),  # scoring, forward, backward
            (f"{update}/stage.json", chance.uniform(0.05, 0.3)),
            (f"{update}/.partial-*/*", 0.0),  # the checkpoint is being written
            (f"{update}/checkpoint", chance.uniform(0, 0.05)),
        ]
    found.insert(12, (f"{ARM}/readout/part-000.parquet", chance.uniform(0, 0.3)))
    found += [(f"{ARM}/check-3/part-001.parquet", 0.0), (f"{ARM}/check-3/stage.json", 0.0)]
    return [(pattern, pattern.replace(".partial-*/*", "checkpoint"), delay) for pattern, delay in found]


def phase(family: Path) -> str:
    """What a runner that was killed just now was at."""
    for k in UPDATES:
        update = family / ARM / f"update-{k}"
        if (update / "checkpoint" / "complete.json").is_file():
            continue
        if any(update.glob(".partial-*/*")) or (update / "audit.json").is_file():
            return "save"
        if (update / "stage.json").is_file():
            return "backward"
        if update.is_dir():
            return "sampling"
        break
    return "other"


def killed_often(folder: Path, chance: random.Random) -> Counter:
    """Run the commands in `folder`, killed at every trigger, then once more to the end; how many kills fell into which phase."""
    family, context, kills = folder / "runs" / "mini" / "main", processes(), Counter()
    for pattern, over, delay in triggers(chance):
        process = context.Process(target=work, args=(folder,))
        process.start()
        late = any(family.glob(over))  # it was passed before the last kill: any moment will do
        while process.is_alive() and not (late or any(family.glob(pattern)) or any(family.glob(over))):
            time.sleep(0.0005)
        time.sleep(chance.uniform(0.3, 2.0) if late else delay)
        process.kill()
        process.join()
        assert process.exitcode == -9, (
            f"{pattern}: ended by itself with {process.exitcode}: {(folder / 'output.txt').read_text()[-2000:]}"
        )
        kills[phase(family)] += 1
    finish(folder)
    return kills


def finish(folder: Path) -> None:
    """Run the commands in `folder` to their end."""
    process = processes().Process(target=work, args=(folder,))
    process.start()
    process.join()
    assert process.exitcode == 0, (folder / "output.txt").read_text()[-2000:]
