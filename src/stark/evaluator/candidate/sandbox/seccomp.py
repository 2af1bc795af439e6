"""seccomp: refuses, with EPERM, system calls that no candidate, compiler or PyTorch program needs.

New sockets are refused: the child already has its channel to the judge and needs no other. Connected
socketpairs stay allowed. If other processes are visible, because there is no process namespace, calls
that stop or slow them are refused too.

There are two filters, BPF programs that are assembled here. The first leaves what opening a device needs; the second
refuses that too, once the device is open. Both apply to all threads.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from collections.abc import Callable, Iterable, Iterator

from stark.evaluator.candidate.sandbox import kernel

Instruction = tuple[int, int, int, int]
"""A BPF instruction: opcode, jump distance if true, jump distance if false, and a constant."""

_LOAD, _EQUAL, _ANY_BIT, _AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_NUMBER, _ARCHITECTURE = 0, 4
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000

_SET_FILTER, _ALL_THREADS = 1, 1

_X32 = 0x40000000
"""Bit that marks the call numbers of x86-64's x32 ABI, all refused: the filter's rules would not match them."""

NEW_NAMESPACES = 0x7E020080
"""All CLONE_NEW… flags of clone(2)."""

_ARCHITECTURES, _AUDIT = {"x86_64": 0, "aarch64": 1}, (0xC000003E, 0xC00000B7)
"""Machine types with their columns in the tables below, and Linux's numbers of these types."""

# Numbers on x86-64 and on aarch64; None where there is no such call.
_REFUSED: dict[str, tuple[int | None, int | None]] = {
    # communication with other machines, and with other programs on this one
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "shmat": (30, 196),  # the ids of other processes' segments are easily guessed
    "shmctl": (31, 195),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "semctl": (66, 191),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "io_uring_setup": (425, 425),  # its operations bypass this filter
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    # other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "timer_create": (222, 107),  # its signal may continue a process that the judge stopped
    # the machine
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "acct": (163, 89),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    # parts of Linux with the most known vulnerabilities
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "personality": (135, 92),
}

_REFUSED_AFTER_OPENING: dict[str, tuple[int, int]] = {
    "socket": (41, 198),
    "connect": (42, 203),
    "bind": (49, 200),
    "memfd_create": (319, 279),  # memory that no limit counts
    "seccomp": (317, 277),
}
"""What NVIDIA's driver calls when it opens a device (`seccomp` is for the second filter). `cuInit` returns 304 without.
Until then, namespaces keep a socket from reaching anybody."""

_ON_ITSELF_ONLY = {  # calls whose first argument is a process that they signal or slow
    "kill": (62, 129),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "prlimit64": (302, 261),
    "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
}
_ON_ANY_PROCESS = {
    "tkill": (200, 130),
    "pidfd_send_signal": (424, 424),
    "ioprio_set": (251, 30),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
}
_LEAVING_ITS_GROUP = {"setsid": (112, 157), "setpgid": (109, 154)}
_SETPRIORITY, _FCNTL, _IOCTL = (141, 140), (72, 25), (16, 29)
_CLONE, _CLONE3, _TRUNCATE = (56, 220), (435, 435), (76, 45)
_SOCKETPAIR, _SECCOMP = (53, 199), (317, 277)

_CLONE_VM, _CLONE_VFORK, _CLONE_PARENT, _CLONE_THREAD = 0x100, 0x4000, 0x8000, 0x10000
"""Flags of clone(2). A process that shares memory is a thread, or waits for its child (posix_spawn): others could work on
results while all known processes are stopped. None makes a sibling of itself."""

_SETTING_OWNERS = (8, 10, 15)
"""F_SETOWN, F_SETSIG and F_SETOWN_EX, with which a process makes Linux send signals on its behalf."""

_SIGNALS_AND_LEASES = (10, 1024, 1026, 1040)
"""F_SETSIG, F_SETLEASE, F_NOTIFY and F_SETDELEG. The first lets any signal announce input, such as one that continues a
stopped process. Whoever opens a file on which a process holds a lease waits for that process."""

_TERMINAL_INPUT = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX, which put text into a terminal as if it had been typed."""

_OWNERS_BY_IOCTL = (0x8901, 0x8902)
"""FIOSETOWN and SIOCSPGRP, which do for sockets what F_SETOWN does for any file."""

_CONNECTED_TYPES = tuple(
    kind | closing | blocking
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)
    for closing in (0, socket.SOCK_CLOEXEC)
    for blocking in (0, socket.SOCK_NONBLOCK)
)
"""Socket types that stay connected to their peer. A datagram socket could connect elsewhere."""


def restrict(sees_others: bool, refuse_truncate: bool) -> None:
    """Install the filter that leaves only what opening a device needs. It holds for every thread, permanently.

    Needs `kernel.forbid_new_privileges`. `sees_others` says whether the process can name processes outside of the
    sandbox. `refuse_truncate` is for Landlock versions that do not restrict truncate(2). Raises OSError, and
    RuntimeError on an unknown architecture.
    """
    _install(lambda column: assemble(column, sees_others, refuse_truncate, os.getpid()))


def restrict_further() -> None:
    """After `restrict`, install a second filter for what opening a device needed. Raises like `restrict`."""
    _install(assemble_further)


def _install(assembled: Callable[[int], list[Instruction]]) -> None:
    column = _ARCHITECTURES.get(os.uname().machine)
    if column is None:
        raise RuntimeError(f"there is no seccomp filter for {os.uname().machine}")
    program = assembled(column)
    packed = b"".join(struct.pack("<HBBI", *instruction) for instruction in program)
    held = ctypes.create_string_buffer(packed, len(packed))
    header = struct.pack("<HxxxxxxQ", len(program), ctypes.addressof(held))
    given = _SET_FILTER, _ALL_THREADS, header
    failed_thread = kernel.syscall("seccomp", _SECCOMP[column], *given)
    if failed_thread:
        raise RuntimeError(f"the seccomp filter cannot be applied to thread {failed_thread}")


def assemble(column: int, sees_others: bool, refuse_truncate: bool, own: int) -> list[Instruction]:
    """The first filter's instructions. `own` is the id of the process that the filter is for."""
    towards_others = _towards_others(column, own) if sees_others else ()
    return _filter(column, *_always(column, refuse_truncate), *towards_others)


def assemble_further(column: int) -> list[Instruction]:
    """The second filter's instructions."""
    numbers = (each[column] for each in _REFUSED_AFTER_OPENING.values())
    return _filter(column, *(rule for number in numbers for rule in _never(number)))


def _filter(column: int, *rules: Instruction) -> list[Instruction]:
    return [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _AUDIT[column]),
        _refuse(),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        _refuse(),
        *rules,
        (_RETURN, 0, 0, _ALLOW),
    ]


def _always(column: int, refuse_truncate: bool) -> Iterator[Instruction]:
    for numbers in _REFUSED.values():
        yield from _never(numbers[column])
    # Filters cannot read clone3's flags, which are in memory. C libraries fall back to clone.
    yield from _never(_CLONE3[column], errno.ENOSYS)
    refused = [(_ANY_BIT, 0, 1, NEW_NAMESPACES | _CLONE_PARENT), _refuse()]
    hidden = [
        (_ANY_BIT, 0, 2, _CLONE_VM),
        (_ANY_BIT, 1, 0, _CLONE_VFORK | _CLONE_THREAD),
        _refuse(),
    ]
    yield from _on(_CLONE[column], 0, [*refused, *hidden])
    yield from _except(_IOCTL[column], 1, _TERMINAL_INPUT)
    yield from _except(_FCNTL[column], 1, _SIGNALS_AND_LEASES)
    yield from _only(_SOCKETPAIR[column], 0, (socket.AF_UNIX,))
    yield from _only(_SOCKETPAIR[column], 1, _CONNECTED_TYPES)
    if refuse_truncate:
        yield from _never(_TRUNCATE[column])


def _towards_others(column: int, own: int) -> Iterator[Instruction]:
    for numbers in _ON_ITSELF_ONLY.values():
        yield from _only(numbers[column], 0, (0, own))
    for numbers in _ON_ANY_PROCESS.values():
        yield from _never(numbers[column])
    for numbers in _LEAVING_ITS_GROUP.values():
        # Pretend success, because honest tools give up otherwise. The child must stay in its
        # process group, the only unit that can be killed at once in this case.
        yield from _never(numbers[column], error=0)
    yield from _only(_SETPRIORITY[column], 0, (0,))
    yield from _only(_SETPRIORITY[column], 1, (0, own))
    yield from _except(_FCNTL[column], 1, _SETTING_OWNERS)
    yield from _except(_IOCTL[column], 1, _OWNERS_BY_IOCTL)


def _never(number: int | None, error: int = errno.EPERM) -> Iterator[Instruction]:
    if number is not None:
        yield (_EQUAL, 0, 1, number)
        yield _refuse(error)


def _only(number: int, argument: int, allowed: Iterable[int]) -> list[Instruction]:
    """Refuse the call unless an argument's low 32 bits have one of these values."""
    values = [value & 0xFFFFFFFF for value in allowed]
    # Each match jumps past the refusal, to the reload of the call's number for the next rule.
    body = [(_EQUAL, len(values) - index, 0, value) for index, value in enumerate(values)]
    return _on(number, argument, [*body, _refuse()])


def _except(number: int, argument: int, refused: Iterable[int]) -> list[Instruction]:
    """Refuse the call if an argument's low 32 bits have one of these values."""
    body: list[Instruction] = []
    for value in refused:
        body += [(_EQUAL, 0, 1, value), _refuse()]
    return _on(number, argument, body)


def _on(number: int, argument: int, body: list[Instruction]) -> list[Instruction]:
    """Run `body` on an argument of this call. Calls that `body` does not refuse go to the next rule."""
    offset = 16 + 8 * argument
    return [
        (_EQUAL, 0, len(body) + 2, number),
        (_LOAD, 0, 0, offset),
        *body,
        (_LOAD, 0, 0, _NUMBER),
    ]


def _refuse(error: int = errno.EPERM) -> Instruction:
    return (_RETURN, 0, 0, _REFUSE | error)
