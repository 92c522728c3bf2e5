"""A run for the viewer to show: C loops where N does not, texts that no browser may obey, and held-out answers to read blind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ablation.plan.lock import LockedPlan
from ablation.rollouts.blind_record import BlindFolder
from ablation.rollouts.folder import RunFolder
from ablation.rollouts.store import finish_stage, write_part
from tests.blind.made import held_out_rows, lock_with_read, write_evaluation
from tests.verdict.study import CLOSE, DIGITS, END, PROBLEMS, rollout, stage_info, start_run, tell_stage

HOSTILE = (
    "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    "<a href='https://example.invalid/'>a link</a> & {{ 7 * 7 }} \x1b[31mred\x07 \u202eright to left \x00end"
)
LOOPS = {
    # (problem, effort, index) -> times that a unit of 6 tokens is there, or the thinking itself; 6 tokens of another kind follow
    "C": {("p1", "low", 0): 6, ("p2", "medium", 1): 9, ("p4", "low", 0): 8},
    "N": {("p4", "low", 0): 8},
}
LONGEST = ("p2", "medium", 1)
"""The longest of C's loops that N does not have: 9 * 6 tokens; p4@low #0 loops in both."""


def make(root: Path, name: str = "small") -> tuple[RunFolder, LockedPlan]:
    """The run `root / runs / name` of a plan in `root / plans`."""
    locked = lock_with_read(root / f"plans-{name}")
    run = start_run(root / "runs" / name, locked)
    for family in ("main", "replication"):
        for arm in ("start", "C", "N"):
            folder = run.sweep(family) if arm == "start" else run.readout(family, arm)
            write(run, locked, family, arm, folder)
    return run, locked


def write(run: RunFolder, locked: LockedPlan, family: str, arm: str, folder: Path, *, whole: bool = True, **changes) -> None:
    """A stage on all cells. The first rollout of C has a hostile text; `whole`: it is complete and told of in the journal."""
    info = stage_info(locked, family, arm, **changes)
    rows = []
    for effort in ("low", "medium"):
        for problem in PROBLEMS:
            for index in range(2):
                one = rollout(info, problem, effort, index, "clean", -0.5 if arm == "start" else -0.4)
                times = LOOPS.get(arm, {}).get((problem, effort, index))
                if times:
                    thinking = times if isinstance(times, list) else [20, 21, 22, 23, 24, 25] * times
                    ids = [*thinking, CLOSE, DIGITS + int(problem[1:]), END]
                    one = replace(
                        one, token_ids=ids, logprobs=[-0.4] * len(ids), top_entropy=[0.4] * len(ids), top_mass=[0.9] * len(ids)
                    )
                hostile = arm == "C" and (problem, effort, index) == ("p0", "low", 0)
                text = HOSTILE if hostile else f"{problem} at {effort}, thought of by {arm}"
                rows.append(replace(one, thinking_text=text, logprobs=[-0.1 * (at % 9) for at in range(len(one.token_ids))]))
    write_part(folder / "part-000.parquet", info, rows)
    if whole:
        finish_stage(folder, info, ["part-000.parquet"])
        tell_stage(run, locked, folder)


def with_held_out(run: RunFolder, locked: LockedPlan) -> BlindFolder:
    """Both stages of the comparison of N@2 on held-out."""
    return write_evaluation(run, locked, "held-out", held_out_rows())
