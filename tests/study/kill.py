"""Runs of the real command line in processes that are cheap to start, so that many of them can be killed.

The processes are forked from a server that has imported everything; each of them loads the model and works on the run folder as
`ablation run` does, and dies by a real SIGKILL.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

ARM = "XK"
COMMANDS = (["run", "--arm", ARM], ["run", "--arm", ARM, "--continue-to", "3"])
"""An arm with its readout, then one update and one check of its extension."""
UPDATES = (1, 2, 3)
SAVE = "inside the save of "
LATE = 0.15
"""Seconds: the work goes on for no longer where what a kill waited for is there already."""
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


def work(folder: Path, dies_in: str | None = None) -> None:
    """Both commands, one after the other, as a user types them in `folder`; ends with the first exit code that is not 0.

    `dies_in` names an update: the process kills itself when its checkpoint is written and not yet at its final name, a moment too
    short to be hit from outside.
    """
    from ablation.cli.main import main

    os.chdir(folder)
    if dies_in is not None:
        _die_in_save(dies_in)
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


def _die_in_save(update: str) -> None:
    from ablation import files

    sync = files.sync_folder

    def sync_or_die(folder: Path) -> None:
        if folder.name.startswith(files.TEMPORARY_PREFIX) and folder.parent.name == update:
            os.kill(os.getpid(), signal.SIGKILL)
        sync(folder)

    files.sync_folder = sync_or_die


def triggers(chance: random.Random) -> list[tuple[str, str, float]]:
    """Twenty moments in the order of the work: what must have appeared below the arm's family, what says that it is over, and
    for how many seconds after that the work goes on.
    """
    found = [("start/sweep/part-000.parquet", 0.0), ("start/sweep/part-001.parquet", chance.uniform(0, 0.2))]
    for k in UPDATES:
        update = f"{ARM}/update-{k}"
        found += [
            (f"{update}/part-000.parquet", chance.uniform(0, 0.05)),  # sampling
            (SAVE + update, 0.0),  # so that the next two find the stage whole and the checkpoint not
            (f"{update}/stage.json", chance.uniform(0, 0.05)),  # scoring, forward, backward
            (f"{update}/stage.json", chance.uniform(0.05, 0.3)),
            (f"{update}/checkpoint", chance.uniform(0, 0.05)),
        ]
    found.insert(12, (f"{ARM}/readout/part-000.parquet", chance.uniform(0, 0.3)))
    found += [(f"{ARM}/check-3/part-001.parquet", 0.0), (f"{ARM}/check-3/stage.json", 0.0)]
    return [(one, f"{one.removeprefix(SAVE)}/checkpoint" if one.startswith(SAVE) else one, delay) for one, delay in found]


def phase(family: Path) -> str:
    """What a runner that was killed just now was at."""
    for k in UPDATES:
        update = family / ARM / f"update-{k}"
        if (update / "checkpoint" / "complete.json").is_file():
            continue
        if (update / "stage.json").is_file():
            return "backward"  # or loading on the way to it, or saving after it
        if update.is_dir():
            return "sampling"
        break
    return "other"


def loads(folder: Path) -> int:
    """How often the runs in `folder` have loaded the model."""
    journal = folder / "runs" / "mini" / "journal.jsonl"
    return journal.read_bytes().count(b'"model_loaded"') if journal.exists() else 0


def killed_often(folder: Path, chance: random.Random) -> Counter:
    """Run the commands in `folder`, killed at every trigger, then once more to the end; how many kills fell into which phase."""
    family, context, kills = folder / "runs" / "mini" / "main", processes(), Counter()
    for pattern, over, delay in triggers(chance):
        inside, loaded = pattern.startswith(SAVE), loads(folder)
        process = context.Process(target=work, args=(folder, Path(pattern).name if inside else None))
        process.start()
        if inside and not any(family.glob(over)):
            process.join()
            kills["save"] += process.exitcode == -signal.SIGKILL
        late = any(family.glob(over))  # it is there already: a moment soon after the model is loaded, before much more is done
        while process.is_alive() and not inside and not (late or any(family.glob(pattern)) or any(family.glob(over))):
            time.sleep(0.0005)
        while process.is_alive() and late and loads(folder) == loaded:
            time.sleep(0.0005)
        if process.is_alive():
            time.sleep(min(delay, LATE) if late else delay)
        process.kill()
        process.join()
        assert process.exitcode == -9, (
            f"{pattern}: ended by itself with {process.exitcode}: {(folder / 'output.txt').read_text()[-2000:]}"
        )
        if not inside:
            kills[phase(family)] += 1
    finish(folder)
    return kills


def finish(folder: Path) -> None:
    """Run the commands in `folder` to their end."""
    process = processes().Process(target=work, args=(folder,))
    process.start()
    process.join()
    assert process.exitcode == 0, (folder / "output.txt").read_text()[-2000:]
