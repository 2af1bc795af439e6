"""Documents of runs that are sent at the same time."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("starlette")

from stark.page.documents import Kept, Parts, run
from stark.store import Store
from support.recordings import RMSNORM, SWIGLU


def attempts_of(parts: Parts) -> list[str]:
    return [each["title"] for each in json.loads(b"".join(parts))["attempts"]]


def test_a_run_that_is_read_while_another_is_sent_changes_nothing(recorded_store: str) -> None:
    with Store.open(recorded_store) as store:
        alone = [attempts_of(run(store, name, 0, Kept(), {})) for name in (SWIGLU, RMSNORM)]
        kept = Kept()
        first = run(store, SWIGLU, 0, kept, {})
        second = run(store, RMSNORM, 0, kept, {})

        together = [attempts_of(first), attempts_of(second)]

    assert alone[0] != alone[1]
    assert alone == together
