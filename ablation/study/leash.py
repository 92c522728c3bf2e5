"""Holds a command for `study.command`: run as a script, and written with nothing beyond the standard library.

    python -I -S leash.py LIFELINE STATUS PROGRAM ARGUMENT...

LIFELINE and STATUS are file descriptors of pipes. How the command ended is written to STATUS as JSON. When LIFELINE closes,
because the runner closed it or because the runner is gone (kill -9 included), the whole process group is killed: no command
outlives its runner.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading


def main(lifeline: int, status: int, command: list[str]) -> None:
    """Never returns: this process is of the group that it kills."""

    def tell(**ended: object) -> None:
        os.write(status, json.dumps(ended).encode())
        os.close(status)

    def run() -> None:
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        except OSError as error:
            tell(error=error.strerror or str(error))
        else:
            tell(exit_code=process.wait())

    os.set_inheritable(lifeline, False)
    os.set_inheritable(status, False)
    threading.Thread(target=run, daemon=True).start()
    while os.read(lifeline, 1):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
