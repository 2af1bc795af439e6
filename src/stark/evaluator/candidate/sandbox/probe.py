"""A candidate that tries to reach out of its sandbox, and prints as JSON by which layer's fault it could.

`stark doctor` has a judge evaluate this text. It imports nothing of STARK, which candidates cannot read.
"""

import ctypes
import json
import os
import resource
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch
import torch.nn as nn


def privileges() -> bool:
    """Whether this thread has root's privileges."""
    lines = Path("/proc/thread-self/status").read_text().splitlines()
    return any(int(line.split()[1], 16) for line in lines if line.startswith(("CapPrm", "CapEff")))


def interfaces() -> bool:
    """Whether this thread has a network interface."""
    lines = Path("/proc/thread-self/net/dev").read_text().splitlines()[2:]
    return any(line.split(":")[0].strip() != "lo" for line in lines)


def sees(secret: str) -> bool:
    """Whether the process with this text in its environment is in /proc."""
    for process in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if secret.encode() in process.read_bytes():
                return True
    return False


def signals() -> bool:
    """Whether this thread may send a signal to another process."""
    os.kill(-1, 0)
    return True


def touches(outside: str) -> bool:
    """Whether this thread can change a file's times."""
    os.utime(outside)
    return True


def reads(outside: str) -> bool:
    """Whether this thread can read a file."""
    return bool(Path(outside).read_text())


def connects() -> bool:
    """Whether this thread can open a socket."""
    with socket.socket():
        return True


def unlimited() -> bool:
    """Whether this process may write files of any size."""
    return resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def breaches(outside: str, secret: str) -> list[str]:
    """The layers of the sandbox that do not hold for this thread."""
    tries: dict[str, Callable[[], bool]] = {
        "limits": unlimited,
        "capabilities": privileges,
        "network": interfaces,
        "processes": signals,
        "proc": lambda: sees(secret),
        "mounts": lambda: touches(outside),
        "landlock": lambda: reads(outside),
        "seccomp": connects,
    }
    found = []
    for layer, reaches in tries.items():
        with suppress(OSError):
            if reaches():
                found.append(layer)
    return found


def on_the_drivers_thread(work: Callable[[], list[str]]) -> list[str]:
    """Do some work on the thread on which CUDA's driver calls host functions."""
    found: list[str] = []
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: found.extend(work()))
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    code = ctypes.CDLL("libcuda.so.1").cuLaunchHostFunc(stream, function, None)
    torch.cuda.synchronize()
    return found if code == 0 else [f"cuLaunchHostFunc failed with error {code}"]


class ModelNew(nn.Module):
    """Does what the problem asks, after it has tried to get out."""

    def __init__(self, outside: str, secret: str, kind: str) -> None:
        super().__init__()

        def tried() -> list[str]:
            return breaches(outside, secret)

        said = {"its own thread": tried()}
        if kind == "cuda":
            said["the driver's thread"] = on_the_drivers_thread(tried)
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As the problem's Model."""
        return x + 1
