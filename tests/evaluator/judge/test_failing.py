"""What a judge answers when it fails itself."""

from __future__ import annotations

import errno

import pytest

pytest.importorskip("torch")

from stark.evaluator.judge.server import failed_on


@pytest.mark.parametrize(
    ("error", "machine"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), True),
        (OSError(errno.EMFILE, "Too many open files"), True),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), False),  # a candidate ended a process
        (FileNotFoundError(errno.ENOENT, "No such file"), False),  # a candidate removed it
        (TimeoutError(), False),
        (RuntimeError("the device did not answer"), False),
    ],
)
def test_only_a_shortage_is_the_machines_failure(error: BaseException, machine: bool) -> None:
    try:
        raise error
    except BaseException as raised:
        failed = failed_on("7", raised)

    assert ("7", machine) == (failed.id, failed.machine)
    assert type(error).__name__ in failed.error
