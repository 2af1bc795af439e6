"""A Ray cluster on this machine, whose nodes can be killed. It notices losses within seconds."""

from __future__ import annotations

import os
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from support.processes import family, outlived_s, parent_of

PORT = 6380

SOON = {
    "RAY_health_check_initial_delay_ms": "500",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "3",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "2",
}
"""Ray's own values are up to a minute. By the environment: a raylet reads the last before it knows the head's values."""


class RayNodes:
    """A head without processors, and two nodes."""

    def __init__(self, cpus: int) -> None:
        """`cpus` are those of each node."""
        from ray.cluster_utils import Cluster

        os.environ |= {"RAY_USAGE_STATS_ENABLED": "0"} | SOON
        self._cpus = cpus
        self._cluster: Any = Cluster()
        self._cluster.add_node(num_cpus=0, include_dashboard=False, gcs_server_port=PORT)
        self._nodes = [self._added() for _ in range(2)]
        self.address: str = self._cluster.address

    def workers(self) -> list[int]:
        """The processes in which judges' actors live."""
        return [pid for node in self._nodes for pid in _workers_of(node)]

    def replace_node(self, worker: int, limit_s: float) -> float:
        """Kill the raylet of a worker's node, and add another node. See `outlived_s`."""
        node = next(each for each in self._nodes if _raylet(each).pid == parent_of(worker))
        self._nodes.remove(node)
        took_s = outlived_s(_raylet(node).kill, _workers_of(node), limit_s)
        self._cluster.remove_node(node, allow_graceful=False)
        self._nodes.append(self._added())
        return took_s

    def kill_head(self, limit_s: float) -> float:
        """Kill all processes of the head; the workers then end by themselves. See `outlived_s`."""
        head = self._cluster.head_node
        return outlived_s(
            lambda: head.kill_all_processes(check_alive=False, allow_graceful=False),
            self.workers(),
            limit_s,
        )

    def _added(self) -> Any:
        node = self._cluster.add_node(num_cpus=self._cpus)
        # Workers end when their raylet has ended, but not while it is a zombie.
        threading.Thread(target=_raylet(node).wait, daemon=True).start()
        return node

    def close(self) -> None:
        """End all nodes."""
        with suppress(Exception):  # whatever is dead already
            self._cluster.shutdown()


def _raylet(node: Any) -> subprocess.Popen[bytes]:
    process: subprocess.Popen[bytes] = node.all_processes["raylet"][0].process
    return process


def _workers_of(node: Any) -> list[int]:
    found = []
    for pid in family([_raylet(node).pid]):
        with suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().startswith("ray::Host"):
                found.append(pid)
    return found
