"""The system call filter: a classic BPF program in the form that `bwrap --seccomp` loads (struct sock_filter, 8 bytes each).

Namespaces and dropped privileges do the work; the filter takes away what they leave: looking into other processes, memory that
no limit counts, further namespaces, every kind of socket but a local one (vsock knows no network namespace), and kernel
features that answers to problems do not need. A refused call fails with EPERM; one that would take memory which `memory` cannot
see, with ENOMEM; clone3, whose flags a filter cannot see, with ENOSYS, so that the C library falls back to clone. Calls of
another instruction set end the process.
"""

from __future__ import annotations

import platform
import struct

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _ENOMEM, _ENOSYS = 1, 12, 38
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, (16, 24, 32, 40)  # offsets in struct seccomp_data, little endian
_NEW_NAMESPACE = 0x7E020000  # every CLONE_NEW* flag that clone takes
_AF_UNIX = 1

# name: (x86_64, aarch64), from the kernel's tables
NUMBERS = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "fanotify_init": (300, 262),
    "kexec_load": (246, 104),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "syslog": (103, 116),
    "personality": (135, 92),
    "sync": (162, 81),
    "syncfs": (306, 267),
}
# memory of the kernel's that would be counted nowhere; where aarch64 lacks the older of two calls, the newer one again
MEMORY_NUMBERS = {
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "epoll_create": (213, 20),
    "epoll_create1": (291, 20),
    "inotify_init": (253, 26),
    "inotify_init1": (294, 26),
    "landlock_create_ruleset": (444, 444),
    "io_setup": (206, 0),
    "vmsplice": (278, 75),
    "splice": (275, 76),
    "tee": (276, 77),
    "sendfile": (40, 71),
    "mbind": (237, 235),
}
_CLONE, _CLONE3, _SOCKET, _SOCKETPAIR, _MMAP, _FCNTL = (56, 220), (435, 435), (41, 198), (53, 199), (9, 222), (72, 25)
_SETSOCKOPT, _PRCTL = (54, 208), (157, 167)
_MAP_SHARED, _MAP_ANONYMOUS = 0x1, 0x20  # together: pages that stay when no process shows them any more
_F_OFD_SETLK, _F_OFD_SETLKW, _F_SETPIPE_SZ = 37, 38, 1031  # locks of no process, and larger pipes
_CLONE_FILES, _CLONE_THREAD = 0x400, 0x10000  # without the second: locks of a process that has ended stay with another's files
_DATAGRAM = 0x2  # a bit of its type: a queue of such a socket holds what many others sent that are closed
_SO_SNDBUF, _SO_SNDBUFFORCE = 7, 32  # larger queues
_PR_SET_THP_DISABLE = 41  # huge pages, of which a part is let go, stay whole and are seen as the part
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


def supported(machine: str | None = None) -> bool:
    """Whether there is a filter for this kind of processor."""
    return (machine or platform.machine()) in _MACHINES


def program(machine: str | None = None) -> bytes:
    """The filter for this kind of processor (`supported`)."""
    column, architecture = _MACHINES[machine or platform.machine()]
    steps = [_step(_LOAD, _ARCHITECTURE), *_unless_equal(architecture, _KILL), _step(_LOAD, _NUMBER)]
    steps += [_step(_AT_LEAST, 0x40000000, 0, 1), _step(_RETURN, _KILL)]  # x32, the other way to call on x86_64
    for numbers in NUMBERS.values():
        steps += _if_equal(numbers[column], [_step(_RETURN, _ERRNO | _EPERM)])
    no_memory = _step(_RETURN, _ERRNO | _ENOMEM)
    for numbers in MEMORY_NUMBERS.values():
        steps += _if_equal(numbers[column], [no_memory])
    refuse, allow = _step(_RETURN, _ERRNO | _EPERM), _step(_RETURN, _ALLOW)
    larger = [step for option in (_SO_SNDBUF, _SO_SNDBUFFORCE) for step in _if_equal(option, [no_memory])]
    shared = [_step(_ANY_BIT, _MAP_ANONYMOUS, 0, 2), _step(_ANY_BIT, _MAP_SHARED, 0, 1), no_memory]
    unseen = [step for command in (_F_OFD_SETLK, _F_OFD_SETLKW, _F_SETPIPE_SZ) for step in _if_equal(command, [no_memory])]
    files = [_step(_ANY_BIT, _CLONE_THREAD, 2, 0), _step(_ANY_BIT, _CLONE_FILES, 0, 1), refuse]
    local = [*_unless_equal(_AF_UNIX, _ERRNO | _EPERM), _argument(1), _step(_ANY_BIT, _DATAGRAM, 0, 1), no_memory]
    stays_off = [_argument(1), *_if_equal(0, [refuse]), _argument(2), *_unless_equal(0, _ERRNO | _EPERM)]
    for numbers, argument, body in (
        (_SETSOCKOPT, 2, larger),
        (_MMAP, 3, shared),
        (_FCNTL, 1, unseen),
        (_CLONE, 0, [_step(_ANY_BIT, _NEW_NAMESPACE, 0, 1), refuse, *files]),
        (_SOCKET, 0, local),
        (_SOCKETPAIR, 0, local),
        (_PRCTL, 0, _if_equal(_PR_SET_THP_DISABLE, stays_off)),
    ):
        steps += _if_equal(numbers[column], [_argument(argument), *body, allow])
    steps += _if_equal(_CLONE3[column], [_step(_RETURN, _ERRNO | _ENOSYS)])
    return b"".join([*steps, _step(_RETURN, _ALLOW)])


def _argument(number: int) -> bytes:
    return _step(_LOAD, _ARGUMENTS[number])


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _if_equal(value: int, body: list[bytes]) -> list[bytes]:
    return [_step(_EQUAL, value, 0, len(body)), *body]


def _unless_equal(value: int, otherwise: int) -> list[bytes]:
    return [_step(_EQUAL, value, 1, 0), _step(_RETURN, otherwise)]
