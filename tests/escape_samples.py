"""Attempts to get out of the sandbox: what each does, and which layers stop it, any of them alone.

They are made without any layer as well, by the administrator too: success must do no harm.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SECRET = "a-key-that-was-paid-for"


class Escape(NamedTuple):
    """Python that ends quietly only if it got out; it finds its victims in `there`."""

    source: str
    stopped_by: frozenset[str]


def _escape(source: str, *stopped_by: str) -> Escape:
    return Escape(source, frozenset(stopped_by))


_REFUSED_CALL = "import ctypes\nif ctypes.CDLL(None, use_errno=True).{}  < 0: raise OSError"

ESCAPES: dict[str, Escape] = {
    "connect by TCP": _escape(
        "import socket\nsocket.create_connection(('127.0.0.1', there['port']), 5)",
        "network",
        "landlock",
        "seccomp",
    ),
    "send by UDP": _escape(
        "import socket\nend = socket.socket(type=socket.SOCK_DGRAM)\n"
        "end.connect(('127.0.0.1', there['port']))",
        "network",
        "seccomp",
    ),
    "connect to an abstract socket": _escape(
        "import socket\nsocket.socket(socket.AF_UNIX).connect(there['abstract'])",
        "network",
        "landlock",
        "seccomp",
    ),
    "connect to a socket in a folder": _escape(
        "import socket\nsocket.socket(socket.AF_UNIX).connect(there['folder'] + '/socket')",
        "seccomp",
    ),
    "write a letter to a socket in a folder": _escape(
        "import socket\nend, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "end.sendto(b'a secret', there['folder'] + '/letters')",
        "seccomp",
    ),
    "read the environment": _escape(
        "import os\nif there['secret'] not in os.environ.values(): raise KeyError", "limits"
    ),
    "read another's environment": _escape(
        "from pathlib import Path\n"
        "found = Path(f'/proc/{there[\"victim\"]}/environ').read_text()\n"
        "if there['secret'] not in found: raise KeyError",
        "proc",
        "landlock",
    ),
    "read a secret": _escape("open(there['folder'] + '/secret').read()", "landlock"),
    "list a folder": _escape("import os\nos.listdir(there['folder'])", "landlock"),
    "write a file": _escape("open(there['folder'] + '/new', 'w')", "landlock", "mounts"),
    "truncate a file": _escape(
        "import os\nos.truncate(there['folder'] + '/secret', 0)", "landlock", "mounts"
    ),
    "remove a file": _escape(
        "import os\nos.unlink(there['folder'] + '/spare')", "landlock", "mounts"
    ),
    "change a file's mode": _escape("import os\nos.chmod(there['folder'], 0o777)", "mounts"),
    "change a setting of the machine": _escape(
        "open('/proc/sys/kernel/panic_on_oops', 'r+')", "landlock", "mounts"
    ),
    "kill a process": _escape(
        "import os, signal\nos.kill(there['victim'], signal.SIGCONT)",
        "processes",
        "landlock",
        "seccomp",
    ),
    "kill by handle": _escape(
        "import os, signal\n"
        "signal.pidfd_send_signal(os.pidfd_open(there['victim']), signal.SIGCONT)",
        "processes",
        "landlock",
        "seccomp",
    ),
    "have the kernel send the signal": _escape(
        "import fcntl, os, signal\nreading, writing = os.pipe()\n"
        "fcntl.fcntl(reading, fcntl.F_SETOWN, there['victim'])\n"
        "fcntl.fcntl(reading, 10, signal.SIGCONT)",
        "processes",
        "seccomp",
    ),
    "slow a process": _escape(
        "import os\nos.sched_setaffinity(there['victim'], os.sched_getaffinity(0))",
        "processes",
        "seccomp",
    ),
    "limit a process": _escape(
        "import resource\nresource.prlimit(there['victim'], resource.RLIMIT_CORE, (0, 0))",
        "processes",
        "seccomp",
    ),
    "trace a process": _escape(
        _REFUSED_CALL.format("ptrace(16, there['victim'], None, None)"),
        "processes",
        "landlock",
        "seccomp",
    ),
    "be traced": _escape(_REFUSED_CALL.format("ptrace(0, 0, None, None)"), "seccomp"),
    "read another's memory": _escape(
        "open(f'/proc/{there[\"victim\"]}/mem', 'rb')", "proc", "landlock"
    ),
    "enter a new user namespace": _escape(_REFUSED_CALL.format("unshare(0x10000000)"), "seccomp"),
    "mount": _escape(
        # Of no known kind, so that whoever may mount is told so and nothing happens.
        "import ctypes, errno\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "libc.mount(b'none', there['folder'].encode(), b'no-such-kind', 0, None)\n"
        "if ctypes.get_errno() != errno.ENODEV: raise OSError",
        "capabilities",
        "seccomp",
    ),
    "keep memory in a file of none": _escape("import os\nos.memfd_create('kept')", "seccomp"),
    # A lease on a file of its own does not harm, and shows that one on any file that it may read is possible.
    "hold up who opens a file": _escape(
        "import fcntl, tempfile\nfile = tempfile.NamedTemporaryFile(dir='.')\n"
        "fcntl.fcntl(file, 1024, fcntl.F_WRLCK)\nfcntl.fcntl(file, 1024, fcntl.F_UNLCK)",
        "seccomp",
    ),
    "be told who opens a file": _escape(
        "import fcntl, os\nfolder = os.open('.', os.O_RDONLY)\n"
        "try: fcntl.fcntl(folder, fcntl.F_NOTIFY, fcntl.DN_ACCESS)\n"
        "finally: os.close(folder)",
        "seccomp",
    ),
    "leave shared memory": _escape(
        "import ctypes\nlibc = ctypes.CDLL(None)\nsegment = libc.shmget(0, 4096, 0o1600)\n"
        "if segment < 0: raise OSError\nlibc.shmctl(segment, 0, None)",
        "seccomp",
    ),
    "map another's shared memory": _escape(
        "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.shmat.restype = ctypes.c_ssize_t\n"
        "if libc.shmat(there['segment'], None, 0) == -1: raise OSError",
        "seccomp",
    ),
    "remove another's shared memory": _escape(
        "import ctypes\nif ctypes.CDLL(None).shmctl(there['segment'], 0, None) < 0: raise OSError",
        "seccomp",
    ),
}


@contextlib.contextmanager
def victims(folder: Path) -> Iterator[dict[str, object]]:
    """What there is to get at outside: a listener, a process with a secret, a folder with another."""
    folder.mkdir()
    (folder / "secret").write_text(SECRET)
    (folder / "spare").touch()
    process = subprocess.Popen(["sleep", "600"], env={**os.environ, "PAID_KEY": SECRET})
    abstract = f"\0stark-test-{os.getpid()}"
    with contextlib.ExitStack() as stack:
        stack.callback(process.wait)
        stack.callback(process.kill)
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        for address in (abstract, str(folder / "socket")):
            end = stack.enter_context(socket.socket(socket.AF_UNIX))
            end.bind(address)
            end.listen()
        letters = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        letters.bind(str(folder / "letters"))
        segment = ctypes.CDLL(None).shmget(0, 4096, 0o1600)
        assert segment >= 0
        stack.callback(ctypes.CDLL(None).shmctl, segment, 0, None)
        yield {
            "segment": segment,
            "port": listener.getsockname()[1],
            "abstract": abstract,
            "folder": str(folder),
            "secret": SECRET,
            "victim": process.pid,
        }
