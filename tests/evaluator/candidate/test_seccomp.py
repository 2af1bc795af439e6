"""The filter as the kernel would run it, for both architectures."""

from __future__ import annotations

import errno
import socket

import pytest

from stark.evaluator.candidate.sandbox.seccomp import (
    _ARCHITECTURES,
    _AUDIT,
    _REFUSED,
    _REFUSED_AFTER_OPENING,
    NEW_NAMESPACES,
    assemble,
    assemble_further,
)

OWN = 4321
ALLOWED = 0x7FFF0000


def answer(
    machine: str,
    number: int,
    *arguments: int,
    sees_others: bool = True,
    audit: int = 0,
    further: bool = False,
) -> int:
    """What the filter returns for a call, by a tiny machine of the packet filter's kind."""
    entry = _ARCHITECTURES[machine]
    program = assemble_further(entry) if further else assemble(entry, sees_others, True, OWN)
    words = {0: number, 4: audit or _AUDIT[entry]}
    words |= {16 + 8 * index: value & 0xFFFFFFFF for index, value in enumerate(arguments)}
    held, at = 0, 0
    while True:
        code, if_true, if_false, constant = program[at]
        at += 1
        match code:
            case 0x20:
                held = words.get(constant, 0)
            case 0x15:
                at += if_true if held == constant else if_false
            case 0x35:
                at += if_true if held >= constant else if_false
            case 0x45:
                at += if_true if held & constant else if_false
            case 0x06:
                return constant


def refused(found: int, error: int = errno.EPERM) -> bool:
    return found == 0x00050000 | error


@pytest.mark.parametrize("machine", _ARCHITECTURES)
def test_what_is_listed_is_refused_and_the_rest_is_not(machine: str) -> None:
    column = _ARCHITECTURES[machine]
    listed = {numbers[column] for numbers in _REFUSED.values()} - {None}

    assert all(refused(answer(machine, number)) for number in listed if number is not None)
    read, write, mmap, futex = ((0, 1, 9, 202), (63, 64, 222, 98))[column]
    assert [ALLOWED] * 4 == [answer(machine, number) for number in (read, write, mmap, futex)]


@pytest.mark.parametrize("machine", _ARCHITECTURES)
def test_what_opening_a_device_needs_is_refused_only_afterwards(machine: str) -> None:
    column = _ARCHITECTURES[machine]
    needed = [numbers[column] for numbers in _REFUSED_AFTER_OPENING.values()]

    assert [ALLOWED] * len(needed) == [answer(machine, number) for number in needed]
    assert all(refused(answer(machine, number, further=True)) for number in needed)
    assert answer(machine, 63 if column else 0, further=True) == ALLOWED


@pytest.mark.parametrize("machine", _ARCHITECTURES)
def test_a_fork_is_allowed_and_a_namespace_is_not(machine: str) -> None:
    clone = (56, 220)[_ARCHITECTURES[machine]]

    assert ALLOWED == answer(machine, clone, 17)
    assert ALLOWED == answer(machine, clone, 0x3D0F00)  # a thread
    for bit in range(32):
        if NEW_NAMESPACES & 1 << bit:
            assert refused(answer(machine, clone, 17 | 1 << bit))
    assert refused(answer(machine, 435), errno.ENOSYS)


@pytest.mark.parametrize("machine", _ARCHITECTURES)
def test_no_process_is_a_sibling_or_shares_memory_unless_its_parent_waits(machine: str) -> None:
    clone = (56, 220)[_ARCHITECTURES[machine]]
    memory, waits, sibling = 0x100, 0x4000, 0x8000

    assert ALLOWED == answer(machine, clone, memory | waits | 17)  # posix_spawn
    assert refused(answer(machine, clone, memory | 17))
    assert refused(answer(machine, clone, sibling | 17))


@pytest.mark.parametrize("machine", _ARCHITECTURES)
@pytest.mark.parametrize("stranger", [1, OWN + 1, -1, -OWN])
def test_signals_reach_only_the_process_itself(machine: str, stranger: int) -> None:
    kill, affinity = ((62, 203), (129, 122))[_ARCHITECTURES[machine]]

    assert refused(answer(machine, kill, stranger, 9))
    assert [ALLOWED] * 2 == [answer(machine, kill, pid, 9) for pid in (0, OWN)]
    assert refused(answer(machine, affinity, stranger))
    assert ALLOWED == answer(machine, kill, stranger, 9, sees_others=False)
    assert ALLOWED == answer(machine, affinity, stranger, sees_others=False)


def test_another_set_of_numbers_is_refused() -> None:
    assert refused(answer("x86_64", 0x40000000))
    assert refused(answer("x86_64", 0, audit=0x40000003))


@pytest.mark.parametrize("machine", _ARCHITECTURES)
def test_only_sockets_that_are_paired_for_life_can_be_made(machine: str) -> None:
    socketpair = (53, 199)[_ARCHITECTURES[machine]]
    closing = socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK

    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
        assert ALLOWED == answer(machine, socketpair, socket.AF_UNIX, kind)
        assert ALLOWED == answer(machine, socketpair, socket.AF_UNIX, kind | closing)
        assert refused(answer(machine, socketpair, socket.AF_TIPC, kind))
    assert refused(answer(machine, socketpair, socket.AF_UNIX, socket.SOCK_DGRAM))
    assert refused(answer(machine, socketpair, socket.AF_UNIX, socket.SOCK_DGRAM | closing))


def test_text_cannot_be_typed_into_a_terminal() -> None:
    assert refused(answer("x86_64", 16, 0, 0x5412))
    assert ALLOWED == answer("x86_64", 16, 0, 0x5413)
