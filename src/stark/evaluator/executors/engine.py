"""Ray, and how long its actors live when nobody needs them."""

from __future__ import annotations

import importlib
from typing import Any

PING_S = 5.0
"""Seconds between two pings of a driver. They tell it what a judge has prepared and who else waits for it."""

IDLE_S = 60.0
"""Seconds without a ping from any driver after which an actor ends, so that the cluster can use its place."""


def shared_actor(kind: type, name: str, namespace: str, *given: Any, **placed: Any) -> Any:
    """An actor that all drivers of a cluster share: it is created with what is given, or found by its name."""
    options = {"get_if_exists": True, "lifetime": "detached", "max_restarts": -1, **placed}
    actor = (
        ray().remote(kind).options(name=name, namespace=namespace, max_concurrency=1000, **options)
    )
    return actor.remote(*given)


def ray() -> Any:
    """The package, which is large and imported only where it is used."""
    return importlib.import_module("ray")
