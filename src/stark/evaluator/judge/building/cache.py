"""The folder in which builds are kept: how large it is, and which go when it is too large.

Every build is a folder named by its key; beside it lie KEY.built with its size in bytes, KEY.lock for whoever writes into
it, and KEY.use, which every evaluation that needs it holds shared and whoever removes it holds alone. Several judges
share one folder. Knows no build but by its key, and no torch.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from stark.core.errors import UsageError
from stark.evaluator.judge.processes import folders

FOLDER, GIGABYTES = "STARK_CACHE", "STARK_CACHE_GB"
"""Environment variables."""

DEFAULT_GB = 20.0

LEFT = 0.8
"""Share of its bound that is left after builds had to go, so that not every build has to remove one."""


@dataclass(frozen=True)
class _Entry:
    key: str
    used_at: float
    size: int


def cache_folder() -> Path:
    """Where builds and locks lie unless a judge is told otherwise."""
    return Path(os.environ.get(FOLDER) or Path.home() / ".cache" / "stark")


def builds_below(cache: Path) -> Path:
    """Where the builds lie in it."""
    return cache / "builds"


def locks_below(cache: Path) -> Path:
    """Where the judges of a machine hold each other off."""
    return cache / "locks"


def make_folder(cache: Path) -> None:
    """Make sure that builds and locks can be written there. Raises UsageError."""
    try:
        for folder in (builds_below(cache), locks_below(cache)):
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UsageError(
            f"{cache} cannot be written ({error.strerror}); set {FOLDER} to a folder that can, for builds"
        ) from error


def most_gb() -> float:
    """How many GB of builds are kept. Raises UsageError for what is no size."""
    said = os.environ.get(GIGABYTES) or str(DEFAULT_GB)
    try:
        found = float(said)
    except ValueError:
        found = -1.0
    if not 0 < found < float("inf"):
        raise UsageError(f"{GIGABYTES} is {said!r}; set it to the GB of builds to keep, such as 20")
    return found


class BuildCache:
    """Builds below `root`, in which those used last are kept up to `most_bytes`."""

    def __init__(self, root: Path, most_bytes: float) -> None:
        self.root = root
        self.most_bytes = most_bytes

    @contextmanager
    def in_use(self, key: str) -> Iterator[None]:
        """While this is held, nobody removes the build, if there is one. Others may hold it too."""
        try:
            with _open_held(self._path(key, "use")) as descriptor:
                os.utime(descriptor)
                yield
        finally:
            if not self.complete(key):  # it failed, and is made anew whenever it is asked for
                self._remove(key)

    def note(self, key: str) -> None:
        """A build is complete: note its size, and make room for it. The caller holds it in use."""
        self._path(key, "built").write_text(str(_size(self.root / key)))
        self._make_room()

    def forget(self, key: str) -> None:
        """A build is about to be made anew, or failed. The caller holds its lock."""
        self._path(key, "built").unlink(missing_ok=True)
        folders.remove(self.root / key)

    def complete(self, key: str) -> bool:
        """Whether the build is there as a whole."""
        return self._path(key, "built").exists()

    def total(self) -> tuple[int, int]:
        """How many builds there are, and their bytes together."""
        sizes = [entry.size for entry in self._entries() if self.complete(entry.key)]
        return len(sizes), sum(sizes)

    def _make_room(self) -> None:
        """Remove the builds that were not used for longest, and what interrupted ones left; none that is in use."""
        entries = sorted(self._entries(), key=lambda entry: entry.used_at)
        size = sum(entry.size for entry in entries)
        if size <= self.most_bytes:
            return
        for entry in entries:
            if size <= LEFT * self.most_bytes:
                return
            if self._remove(entry.key):
                size -= entry.size

    def _remove(self, key: str) -> bool:
        """Remove a build with all that belongs to it, unless somebody uses it."""
        path = self._path(key, "use")
        with path.open("a") as held:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            if not _is_at(held.fileno(), path):
                return False  # somebody else just removed it
            self.forget(key)
            self._path(key, "lock").unlink(missing_ok=True)
            path.unlink()
        return True

    def _entries(self) -> Iterator[_Entry]:
        """All that there is anything of."""
        if not self.root.is_dir():
            return
        for key in {path.name.partition(".")[0] for path in self.root.iterdir()}:
            used_at, size = 0.0, 0
            with suppress(OSError):
                used_at = self._path(key, "use").stat().st_mtime
            with suppress(OSError, ValueError):
                said = self._path(key, "built").read_text()
                size = int(said) if said else _size(self.root / key)
            yield _Entry(key, used_at, size)

    def _path(self, key: str, kind: str) -> Path:
        return self.root / f"{key}.{kind}"


@contextmanager
def _open_held(path: Path) -> Iterator[int]:
    """The descriptor of a file that is held shared, and is still the one at its path."""
    while True:
        with path.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            if _is_at(file.fileno(), path):
                yield file.fileno()
                return


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), there)


def _size(folder: Path) -> int:
    """Bytes of the files below a folder."""
    return sum(
        entry.stat(follow_symlinks=False).st_size
        for entry, _ in folders.entries(folder)
        if entry.is_file(follow_symlinks=False)
    )
