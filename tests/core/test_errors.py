from __future__ import annotations

import pytest

from stark.core import errors
from stark.core.errors import OptionError, StarkError

ALL: list[type[StarkError]] = [kind for kind in vars(errors).values() if isinstance(kind, type)]

EXIT_CODES = {
    "StarkError": 1,
    "UsageError": 2,
    "OptionError": 2,
    "ProblemError": 2,
    "RecordingError": 2,
    "MachineError": 2,
    "JudgeUnavailable": 2,
    "DeadlyRequest": 2,
    "StoreError": 2,
    "Held": 2,
    "TryAgain": 2,
    "ModelError": 1,
    "ModelRefused": 2,
    "PromptRefused": 1,
    "ModelUnreachable": 1,
    "ReplyError": 1,
    "JudgeDied": 1,
}


def test_the_exit_code_is_2_where_the_request_or_the_machine_is_to_be_mended() -> None:
    assert EXIT_CODES == {kind.__name__: kind.exit_code for kind in ALL}


@pytest.mark.parametrize("kind", ALL)
def test_every_error_is_ours_and_keeps_its_sentence(kind: type[StarkError]) -> None:
    error = kind("do this: it helps")

    assert isinstance(error, StarkError)
    assert "do this: it helps" == str(error)
    assert kind.__doc__


def test_options_are_named_as_the_caller_writes_them() -> None:
    error = OptionError("exec:{model} has no price", "set {price}, or {unpriced}")

    assert "exec:{model} has no price: set price, or unpriced" == str(error)
    assert "exec:{model} has no price: set --price, or --unpriced" == error.naming(
        lambda o: f"--{o}"
    )
