"""Work that misbehaves on request, for the tests of the workers."""

import os
import signal
import sys
import time

KEPT: list[bytes] = []


def prepare() -> None:
    print("a package that prints when it is imported")


def work(item):
    match item:
        case ["echo", value]:
            return value
        case ["pid"]:
            return [os.getpid(), os.getppid()]
        case ["mark", path]:
            with open(path, "w") as file:
                file.write(f"{os.getpid()} {os.getppid()}\n")
        case ["print"]:
            print("x" * 100_000)
            sys.stderr.write("y" * 100_000)
            return sys.stdin.read()
        case ["spin"]:
            return 7 ** (7**7_000_000)  # one long operation inside the interpreter
        case ["sleep"]:
            time.sleep(60)
        case ["eat"]:
            while True:
                KEPT.append(b"x" * (1 << 24))
        case ["die", number]:
            os.kill(os.getpid(), number)
        case ["die_once", path]:
            if not os.path.exists(path):
                open(path, "w").close()
                os.kill(os.getpid(), signal.SIGSEGV)
            return "alive"
        case ["kill_parent"]:
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(60)
