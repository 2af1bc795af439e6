"""What `ray:…` means, and what is said of nodes that cannot serve."""

from __future__ import annotations

import pytest

from stark.core.errors import UsageError
from stark.evaluator.executors import open_executor
from stark.evaluator.executors.cluster import Greeting, Wish, _fault_of


def test_another_version_on_a_node_is_named() -> None:
    fault = _fault_of(Greeting("0.0.7", "node7", "", ""))

    assert fault is not None
    assert "the node node7 has STARK 0.0.7" in fault


@pytest.mark.parametrize("text", ["?judges=0", "x?judges=two", "?gpus=3", "?device=tpu", "x?cpus="])
def test_a_wish_that_cannot_be_read_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="cannot read the executor ray:"):
        open_executor(f"ray:{text}")


def test_a_wish_is_read() -> None:
    assert Wish(None, None, None, 1) == Wish.parse("")
    assert Wish("h:6379", "cuda", 8, 2) == Wish.parse("h:6379?device=cuda&judges=8&cpus=2")
