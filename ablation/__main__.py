"""`ablation` and `python -m ablation`: the process around the command line, which Ctrl-C ends at any moment."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from typing import Any, NoReturn

SIGNALS = {130: signal.SIGINT, 143: signal.SIGTERM}
"""Exit codes of a command that a signal ended."""


def start() -> NoReturn:
    """Run the command line and end the process."""
    _open_closed_streams()
    sys.unraisablehook = _raise_again
    interrupts: list[int] = []

    def interrupt(number: int, frame: Any) -> NoReturn:
        interrupts.append(number)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    try:
        try:
            from ablation.cli.main import main

            if signal.getsignal(signal.SIGINT) is interrupt:
                signal.signal(signal.SIGINT, signal.default_int_handler)
            if interrupts:  # an import took it for something else and went on
                raise KeyboardInterrupt
            main()
        except SystemExit as ended:
            if ended.code not in SIGNALS:
                raise
            _end(ended.code)
        except BaseException as error:
            if not (interrupts or _is_interrupt(error)):
                raise
            print("\ninterrupted: run the same command again", file=sys.stderr)
            _end(130)
    except KeyboardInterrupt:  # a second one, while the first was being answered
        _end(130)


def _open_closed_streams() -> None:
    """A standard stream that the caller closed leads nowhere: the next file opened would take its number, and what is printed."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_RDWR), number)
                setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def _is_interrupt(error: BaseException | None) -> bool:
    """A class body, for one, turns what interrupts it into another error."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _raise_again(unraisable: Any) -> None:
    """What a signal raises in a destructor or a callback is dropped there by Python: the signal is sent once more."""
    number = {KeyboardInterrupt: signal.SIGINT, SystemExit: signal.SIGTERM}.get(unraisable.exc_type)
    if number is None:
        return sys.__unraisablehook__(unraisable)
    later = threading.Timer(0.02, signal.pthread_kill, (threading.main_thread().ident, number))
    later.daemon = True
    return later.start()


def _end(code: int) -> NoReturn:
    """End now: Python's own end takes seconds once torch is loaded."""
    for number in SIGNALS.values():
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    start()
