"""The process that tells one tracker of a run while it trains: `python -m ablation.trackers.process`.

Its stdin has one line, what to do, and then ends when the run does; its stdout has one JSON object a line, what became of it.
What a tracker's package prints goes nowhere.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from pathlib import Path
from typing import Any, TextIO


def main() -> None:
    os.nice(10)  # the run comes first
    told = _own_output()
    asked = json.loads(sys.stdin.readline())
    try:
        _serve(asked, told)
    except Exception as error:
        from ablation.trackers.follow import in_words

        _tell(told, failed=in_words(error))
        os._exit(1)
    told.flush()
    os._exit(0)  # no package's exit handler waits for a server


def _own_output() -> TextIO:
    """What was stdout; from now on stdout and stderr are nowhere, also for what a package starts."""
    told = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)
    return told


def _tell(told: TextIO, **message: Any) -> None:
    told.write(json.dumps(message) + "\n")
    told.flush()


def _serve(asked: dict[str, Any], told: TextIO) -> None:
    from ablation.trackers.base import Target
    from ablation.trackers.follow import EVERY, Follower, alone, follow, in_words

    target, root = Target(asked["kind"], asked["place"]), Path(asked["root"])
    tracker = target.open(asked["study"])
    _tell(told, ready=tracker.where)

    def wait(seconds: float) -> bool:
        """Wait for the end of the run, for at most `seconds`; whether it has come."""
        ended = bool(select.select([0], [], [], seconds)[0])
        if ended and not signal.getitimer(signal.ITIMER_REAL)[0]:
            signal.setitimer(signal.ITIMER_REAL, asked["patience"])  # whoever would end this process may be gone
        return ended

    said = False

    def trouble(error: Exception) -> None:
        nonlocal said
        if not said:
            _tell(told, trouble=in_words(error))
        said = True

    with alone(target, asked["digest"], wait) as held:
        if not held:
            _tell(told, failed="another process is still telling it of this plan")
            return
        ended = False
        while not _is_there(root) and not ended:
            ended = wait(EVERY)
        if not _is_there(root):
            _tell(told, done=0)
            return
        follower = Follower(_source(root, asked["digest"]), asked["digest"], tracker)
        follow(follower, wait=wait, trouble=trouble)
    _tell(told, done=follower.sent)


def _is_there(root: Path) -> bool:
    from ablation.rollouts.folder import RunFolder

    return RunFolder(root).plan.is_file() and RunFolder(root).journal.is_file()


def _source(root: Path, digest: str) -> Any:
    from ablation.plan.lock import verify_lock
    from ablation.rollouts.folder import RunFolder
    from ablation.trackers.points import open_source

    locked = verify_lock(RunFolder(root).plan)
    if locked.digest != digest:
        raise ValueError(f"{root} is the run folder of another plan")
    return open_source(locked.plan, root)


if __name__ == "__main__":
    main()
