"""What runs in the sandbox: takes a program over one socket, runs it, sends values back. Only the standard library and `values`.

Nothing here is out of reach of the program that it runs, so nothing here is a secret or a judgement. A frame is a nonce of 16
bytes, one letter for its kind, the length of its content in 4 bytes, and the content. An answer repeats the nonce of what it
answers. What comes in is in Python's marshal format, as its sender can be trusted; values that go out are JSON.

`python -I -S inside.py CHANNEL UID`: CHANNEL is the socket's descriptor, UID the user to become (`-` to stay).
"""

import marshal
import os
import resource
import struct
import sys
import time

HEADER = struct.Struct("!16scI")
PROGRAM = "/program/main.py"
ENOMEM = 12
PR_SET_THP_DISABLE = 41
TOLD = 7  # exit status of a check whose verdict was sent


class Channel:
    """Frames over a connected stream socket, blocking. `os` alone, as `socket` takes longer to load than most answers run."""

    def __init__(self, descriptor):
        self._descriptor = descriptor

    def send(self, nonce, kind, content=b""):
        rest = HEADER.pack(nonce, kind, len(content)) + content
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    def receive(self):
        nonce, kind, length = HEADER.unpack(self._exactly(HEADER.size))
        return nonce, kind, self._exactly(length)

    def _exactly(self, length):
        parts = []
        while length:
            part = os.read(self._descriptor, min(length, 1 << 16))
            if not part:
                os._exit(0)  # the parent has gone
            parts.append(part)
            length -= len(part)
        return b"".join(parts)

    def close(self):
        os.close(self._descriptor)


def confine(limits, uid):
    """Give up root, if there is any, and take the limits, for good."""
    if uid != "-":
        user = int(uid)
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    no_huge_pages()
    megabyte = 1 << 20
    # The wall clock is the limit; this one is for several threads at once. The start, which is not the answer's, counts in it.
    seconds = int(-(-limits["seconds"] // 1)) + 1 + int(time.process_time())
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))  # SIGXCPU names the cause, SIGKILL comes after it
    for name, most in (
        ("AS", limits["memory_mb"] * megabyte),
        ("DATA", limits["memory_mb"] * megabyte),
        ("NPROC", limits["processes"]),
        ("NOFILE", limits["files"]),
        ("FSIZE", limits["disk_mb"] * megabyte),
        ("CORE", 0),
        ("MSGQUEUE", 0),
        ("MEMLOCK", 0),
        ("SIGPENDING", 256),  # and timers
    ):
        if name == "NPROC" and not limits["count_processes"]:
            continue
        resource.setrlimit(getattr(resource, "RLIMIT_" + name), (most, most))


def no_huge_pages():
    """For this process and all that come from it: the filter lets nobody take them back.

    Not by `ctypes`: to load that takes ten times as long as its core.
    """
    import _ctypes

    _ctypes.call_function(_ctypes.dlsym(_ctypes.dlopen(None, 2), "prctl"), (PR_SET_THP_DISABLE, 1, 0, 0, 0))


def load(source, name):
    """A module made of `source`; its main guard does not run."""
    module = type(sys)(name)
    sys.modules[name] = module
    exec(compile(source, f"<{name}>", "exec"), module.__dict__)
    return module


def error_name(error):
    if isinstance(error, OSError) and error.errno == ENOMEM:
        return b"MemoryError"
    return type(error).__name__[:100].encode("utf-8", "replace")


def answer_calls(channel, nonce, setup):
    """Load the program, then answer each call frame C with a value V, or with E and the name of what went wrong."""
    try:
        function = getattr(load(setup["source"], "solution"), setup["entry_point"], None)
    except BaseException as error:
        return channel.send(nonce, b"E", error_name(error))
    if not callable(function):
        return channel.send(nonce, b"M")
    channel.send(nonce, b"L")
    while True:
        nonce, _, content = channel.receive()
        args, kwargs = marshal.loads(content)
        try:
            content = dump(function(*args, **kwargs))
        except NotPlain as error:
            channel.send(nonce, b"N", str(error).encode("utf-8", "replace"))
        except BaseException as error:
            channel.send(nonce, b"E", error_name(error))
        else:
            channel.send(nonce, b"V", content)


def serve_checks(channel):
    """Run each check that comes (K) in a process of its own, made in a moment; D if it died without a verdict."""
    import json

    while True:
        nonce, _, content = channel.receive()
        child = os.fork()
        if child == 0:
            run_check(channel, nonce, marshal.loads(content), json.loads)
            os._exit(TOLD)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != TOLD:
            channel.send(nonce, b"D")


def run_check(channel, nonce, setup, read):
    """Run the trusted `check(candidate)`; `candidate` asks the parent with C and gets V. Ends with P (passed), F or E."""
    resource.setrlimit(resource.RLIMIT_CPU, (setup["seconds"], resource.getrlimit(resource.RLIMIT_CPU)[1]))
    resource.setrlimit(resource.RLIMIT_AS, (setup["memory_mb"] << 20, resource.getrlimit(resource.RLIMIT_AS)[1]))
    asked = False

    def candidate(*args, **kwargs):
        nonlocal asked
        asked = True
        channel.send(nonce, b"C", marshal.dumps((decode(encode(list(args))), decode(encode(kwargs)))))
        _, kind, content = channel.receive()
        if kind != b"V":
            os._exit(TOLD)  # there will be no value: the verdict is known
        return decode(read(content))

    try:
        module = load(setup["source"], "check")
        setattr(module, setup["entry_point"], candidate)  # some checks call the function by its name
        module.check(candidate)
    except BaseException as error:
        return channel.send(nonce, b"F" if asked else b"E", error_name(error))
    channel.send(nonce, b"P" if asked else b"E")


def run_program(channel, nonce):
    """Run the script as one does from a shell; report X with its status, and whether it left processes behind."""
    child = os.fork()
    if child == 0:
        channel.close()
        os.execv(
            sys.executable,
            [sys.executable, "-I", "-S", "-X", "frozen_modules", "-X", "utf8", "-X", "int_max_str_digits=0", PROGRAM_PATH],
        )
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    for stream in (0, 1):
        os.close(stream)
    left = COUNTS and others()
    channel.send(nonce, b"X", dump({"status": status, "left": left}))


def others():
    """Whether there are still other processes, after a moment in which those that have ended can be collected."""
    for _ in range(20):
        try:
            os.kill(-1, 0)
        except (ProcessLookupError, PermissionError):
            return False
        time.sleep(0.005)
    return True


def main():
    global PROGRAM_PATH, COUNTS
    channel = Channel(int(sys.argv[1]))
    nonce, kind, content = channel.receive()
    setup = marshal.loads(content)
    PROGRAM_PATH, COUNTS = setup.get("program", PROGRAM), setup["limits"]["count_processes"]
    confine(setup["limits"], sys.argv[2])
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    os.close(nothing)
    sys.argv = ["solution"]
    sys.set_int_max_str_digits(0)  # the limits of time and output are enough
    channel.send(nonce, b"R")
    if kind == b"S":
        answer_calls(channel, nonce, setup)
    elif kind == b"J":
        serve_checks(channel)
    else:
        run_program(channel, nonce)
    channel.receive()


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    from values import NotPlain, decode, dump, encode

    del sys.path[0]
    main()
