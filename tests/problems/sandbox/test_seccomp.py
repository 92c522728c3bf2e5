"""The filter, run step by step on made-up system calls; and its numbers against the kernel's own headers where they are."""

import errno
import fcntl
import mmap
import re
import socket
import struct
from pathlib import Path

import pytest

from ablation.problems.sandbox import seccomp

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def run(program: bytes, number: int, architecture: int, *arguments: int) -> int:
    """A classic BPF machine with the five instructions that the filter uses."""
    data = struct.pack("<iIQ6Q", number, architecture, 0, *arguments, *[0] * (6 - len(arguments)))
    steps = list(struct.iter_unpack("=HBBI", program))
    at = value = 0
    while True:
        code, if_true, if_false, constant = steps[at]
        at += 1
        if code == 0x20:
            (value,) = struct.unpack_from("<I", data, constant)
        elif code == 0x06:
            return constant
        else:
            holds = {0x15: value == constant, 0x35: value >= constant, 0x45: bool(value & constant)}[code]
            at += if_true if holds else if_false


@pytest.fixture(params=["x86_64", "aarch64"])
def machine(request):
    return request.param


def outcome(machine, name_or_number, *arguments):
    numbers = (
        seccomp.NUMBERS
        | seccomp.MEMORY_NUMBERS
        | {
            "clone": (56, 220),
            "clone3": (435, 435),
            "socket": (41, 198),
            "socketpair": (53, 199),
            "mmap": (9, 222),
            "fcntl": (72, 25),
            "setsockopt": (54, 208),
            "prctl": (157, 167),
            "read": (0, 63),
            "execve": (59, 221),
        }
    )
    number = name_or_number if isinstance(name_or_number, int) else numbers[name_or_number][machine == "aarch64"]
    return run(seccomp.program(machine), number, ARCHITECTURES[machine], *arguments)


def test_ordinary_calls_are_allowed(machine):
    assert outcome(machine, "read") == outcome(machine, "execve") == ALLOW


@pytest.mark.parametrize("name", sorted(seccomp.NUMBERS))
def test_refused_calls(machine, name):
    assert outcome(machine, name) == ERRNO | errno.EPERM


@pytest.mark.parametrize("name", sorted(seccomp.MEMORY_NUMBERS))
def test_calls_that_take_unseen_memory(machine, name):
    assert outcome(machine, name) == ERRNO | errno.ENOMEM


def test_memory_that_is_shared_without_a_file(machine):
    private, shared, anonymous = mmap.MAP_PRIVATE, mmap.MAP_SHARED, mmap.MAP_ANONYMOUS
    assert outcome(machine, "mmap", 0, 4096, 3, private | anonymous) == outcome(machine, "mmap", 0, 4096, 3, shared) == ALLOW
    assert outcome(machine, "mmap", 0, 4096, 3, shared | anonymous) == ERRNO | errno.ENOMEM


def test_locks_of_a_process_but_not_of_a_file_and_no_larger_pipes(machine):
    for command in (fcntl.F_GETFL, fcntl.F_SETLK, fcntl.F_SETLKW, fcntl.F_DUPFD_CLOEXEC):
        assert outcome(machine, "fcntl", 3, command) == ALLOW
    for command in (37, 38, fcntl.F_SETPIPE_SZ):
        assert outcome(machine, "fcntl", 3, command) == ERRNO | errno.ENOMEM


def test_processes_and_threads_but_no_namespaces(machine):
    assert outcome(machine, "clone", 17) == ALLOW  # fork: SIGCHLD
    assert outcome(machine, "clone", 0x3D0F00) == ALLOW  # a thread, as glibc makes it
    for flag in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert outcome(machine, "clone", flag | 17) == ERRNO | errno.EPERM
    assert outcome(machine, "clone", 0x400 | 17) == ERRNO | errno.EPERM  # another process with the same files
    assert outcome(machine, "clone3") == ERRNO | errno.ENOSYS


def test_local_sockets_only(machine):
    for call in ("socket", "socketpair"):
        for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC, socket.SOCK_STREAM | socket.SOCK_NONBLOCK):
            assert outcome(machine, call, 1, kind) == ALLOW
        for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC):
            assert outcome(machine, call, 1, kind) == ERRNO | errno.ENOMEM
        for family in (0, 2, 10, 16, 17, 30, 38, 40):
            assert outcome(machine, call, family) == ERRNO | errno.EPERM


def test_queues_of_sockets_stay_as_long_as_they_are(machine):
    for option in (socket.SO_RCVBUF, socket.SO_REUSEADDR, socket.SO_PASSCRED):
        assert outcome(machine, "setsockopt", 3, socket.SOL_SOCKET, option) == ALLOW
    for option in (socket.SO_SNDBUF, 32):
        assert outcome(machine, "setsockopt", 3, socket.SOL_SOCKET, option) == ERRNO | errno.ENOMEM


def test_huge_pages_can_be_put_off_alone(machine):
    assert outcome(machine, "prctl", 41, 1) == outcome(machine, "prctl", 15, 0) == ALLOW
    assert outcome(machine, "prctl", 41, 0) == outcome(machine, "prctl", 41, 1, 2) == ERRNO | errno.EPERM


def test_another_instruction_set_ends_the_process(machine):
    assert run(seccomp.program(machine), 0, 0x40000003) == KILL  # i386
    assert run(seccomp.program("x86_64"), 0x40000000 + 1, ARCHITECTURES["x86_64"]) == KILL  # x32


def test_known_machines():
    assert seccomp.supported("x86_64")
    assert seccomp.supported("aarch64")
    assert not seccomp.supported("riscv64")


@pytest.mark.parametrize(
    ("column", "header"), [(0, "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), (1, "/usr/include/asm-generic/unistd.h")]
)
def test_numbers_are_the_kernels(column, header):
    if not Path(header).exists():
        pytest.skip(f"no {header} here")
    kernel = {name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", Path(header).read_text())}
    both = seccomp.NUMBERS | seccomp.MEMORY_NUMBERS
    ours = {name: numbers[column] for name, numbers in both.items() if name in kernel}
    assert len(ours) > 35
    assert ours == {name: kernel[name] for name in ours}
