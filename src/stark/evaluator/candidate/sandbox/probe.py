"""A candidate that tries to reach out of its sandbox, and prints as JSON by which layer's fault it could.

`stark doctor` has a judge evaluate this text. It imports nothing of STARK, which candidates cannot read.
"""

import ctypes
import json
import os
import re
import resource
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch
import torch.nn as nn


def sees(secret: str) -> bool:
    """Whether the process with this text in its environment is in /proc."""
    for process in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if secret.encode() in process.read_bytes():
                return True
    return False


def breaches(outside: str, secret: str) -> list[str]:
    """The layers of the sandbox that do not hold for this thread."""
    thread = Path("/proc/thread-self")
    tries: dict[str, Callable[[], object]] = {  # which raise OSError or return False
        # files of any size
        "limits": lambda: resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY,
        # any of root's privileges
        "capabilities": lambda: bool(
            re.search(r"^Cap(Prm|Eff):.*[1-9a-f]", (thread / "status").read_text(), re.MULTILINE)
        ),
        # an interface besides the one to this machine itself
        "network": lambda: bool(
            re.search(r"^ *(?!lo:)[^\s:]+:", (thread / "net/dev").read_text(), re.MULTILINE)
        ),
        # a signal to other processes
        "processes": lambda: os.kill(-1, 0),
        "proc": lambda: sees(secret),
        # a file's times
        "mounts": lambda: os.utime(outside),
        # a file's contents
        "landlock": lambda: bool(Path(outside).read_text()),
        "seccomp": lambda: socket.socket().close(),
    }
    found = []
    for layer, reaches in tries.items():
        with suppress(OSError):
            if reaches() is not False:
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
