"""What `ray:…` means, and what is said of nodes that cannot serve."""

from __future__ import annotations

from typing import Any

import pytest

from stark.core.device import Device
from stark.core.errors import UsageError
from stark.evaluator.executors import open_executor
from stark.evaluator.executors.actor import Greeting, _fault_of
from stark.evaluator.executors.builder import Builds, build_nodes
from stark.evaluator.executors.cluster import Wish
from stark.evaluator.protocol import Hello
from support.nodes import CPU, DEVICE, TOOLCHAIN


def test_another_version_on_a_node_is_named() -> None:
    fault = _fault_of(Greeting("0.0.7", "node7", "", ""))

    assert fault is not None
    assert "the node node7 has STARK 0.0.7" in fault


@pytest.mark.parametrize(
    "text", ["?judges=0", "?builders=-1", "x?judges=two", "?gpus=3", "?device=tpu", "x?cpus="]
)
def test_a_wish_that_cannot_be_read_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="cannot read the executor ray:"):
        open_executor(f"ray:{text}")


def test_a_wish_is_read() -> None:
    assert Wish(address=None) == Wish.parse("")
    assert Wish(address="h:6379", device="cuda", judges=8, cpus=2, builders=0) == Wish.parse(
        "h:6379?device=cuda&judges=8&cpus=2&builders=0"
    )


def node(name: str, alive: bool = True, **resources: float) -> dict[str, Any]:
    return {"NodeID": name, "Alive": alive, "Resources": resources}


def test_builders_take_nodes_without_gpus() -> None:
    nodes = [
        node("e", CPU=64.0),
        node("d", CPU=8.0, GPU=1.0),
        node("c", CPU=4.0, alive=False),
        node("b"),
        node("a", CPU=16.0),
    ]

    assert [("a", 16), ("e", 64)] == build_nodes(nodes, None)
    assert [("a", 16)] == build_nodes(nodes, 1)
    assert [] == build_nodes(nodes, 0)


def hello(device: Device) -> Hello:
    return Hello(device=device, versions={}, toolchain=TOOLCHAIN)


def test_a_builder_that_judges_cannot_use_is_explained_in_a_sentence() -> None:
    newer = TOOLCHAIN.model_copy(update={"versions": {"a C++ compiler": "c++ 13.1"}})
    elsewhere = TOOLCHAIN.model_copy(update={"cpu": "Another CPU"})

    assert Builds("n", newer).fault(hello(DEVICE)) == (
        "judges do not use it, because a C++ compiler is c++ 13.1 there and c++ 12.2 here; "
        "use the same image on every node"
    )
    assert Builds("n", elsewhere).fault(hello(DEVICE)) is None
    assert "the CPU is Another CPU there" in (Builds("n", elsewhere).fault(hello(CPU)) or "")
    assert Builds("n", "no torch").fault(hello(CPU)) == "no torch"
