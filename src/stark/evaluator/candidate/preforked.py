"""A child of the forkserver: waits in its own namespaces for a request, then runs a `Runner`.

Most of the sandbox's cost is two forks and the creation of the namespaces. Forking the child ahead
hides that cost.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

from stark.evaluator.candidate.confine import Confinement, Place
from stark.evaluator.candidate.runner import Runner
from stark.evaluator.candidate.sandbox.layers import Layer
from stark.evaluator.candidate.wire import Channel, Message

FAILURES = (OSError, RuntimeError, ValueError)
"""Exceptions that a sandbox layer raises if it cannot be applied."""


def become_runner(requests: Channel, layers: frozenset[Layer], parent: int) -> None:
    """Wait for the forkserver's request, then serve the judge until the channel closes. Dies with `parent`."""
    confinement = Confinement(layers)
    failure: Exception | None = None
    try:
        confinement.prepare(parent)
    except FAILURES as error:
        failure = error  # reported on the child's channel, which comes with the request
    request, (control, output, *arena) = requests.receive_with_descriptors()
    requests.close()
    for descriptor in (control, output, *arena):
        os.set_inheritable(descriptor, False)  # programs started from here must not keep them open
    channel = Channel.from_descriptor(control)
    try:
        if failure is not None:
            raise failure
        confinement.enter(_place(request), output)
        if not request["command"]:
            confinement.close()
            if not request["attaches"]:
                confinement.lock()
    except FAILURES as error:
        channel.send({"ok": False, "error": str(error)})
        return
    channel.send({"ok": True})
    if request["command"]:
        try:
            confinement.become(request["command"])
        except FAILURES as error:
            os.write(output, f"Error: cannot start the tool: {error}\n".encode())
            raise
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)  # a killed child does not flush its buffers
    Runner(channel, arena[0] if arena else None, confinement.lock).serve()


def _place(request: Message) -> Place:
    return Place(
        folder=Path(request["folder"]),
        readable=tuple(map(Path, request["readable"])),
        environment=request["environment"],
        memory_bytes=request["memory_bytes"],
        cpu_s=request["cpu_s"],
    )
