"""Manages the folder of builds, and evicts builds when the folder is too large.

Each build is a folder named by its key. Beside it are two files. KEY.built contains the size of a
finished build in bytes. KEY.lock is locked by an evaluation while it needs the build, and by whoever
removes the build. Several judges may share the folder.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stark.core.errors import UsageError
from stark.evaluator.judge.processes import folders

FOLDER, GIGABYTES = "STARK_CACHE", "STARK_CACHE_GB"
"""Environment variables for the cache's folder and for the gigabytes of builds to keep."""

DEFAULT_GB = 20.0


def cache_folder() -> Path:
    """The default folder for builds and locks."""
    return Path(os.environ.get(FOLDER) or Path.home() / ".cache" / "stark")


def locks_below(cache: Path) -> Path:
    """The subfolder for locks that the judges of a machine share."""
    return cache / "locks"


def most_gb() -> float:
    """Gigabytes of builds to keep. Raises UsageError if the environment variable is invalid."""
    said = os.environ.get(GIGABYTES) or str(DEFAULT_GB)
    try:
        found = float(said)
    except ValueError:
        found = -1.0
    if not 0 < found < float("inf"):
        raise UsageError(f"{GIGABYTES} is {said!r}; set it to a number of gigabytes, such as 20")
    return found


class BuildCache:
    """The builds below `root`. Keeps the most recently used builds, up to `most_bytes` in total."""

    def __init__(self, root: Path, most_bytes: float) -> None:
        self.root = root
        self.most_bytes = most_bytes

    @classmethod
    def opened(cls) -> BuildCache:
        """The user's builds. Creates the folders and checks that they are writable. Raises UsageError."""
        cache, most = cache_folder(), most_gb()
        found = cls(cache / "builds", most * 1e9)
        try:
            for folder in (found.root, locks_below(cache)):
                folder.mkdir(parents=True, exist_ok=True)
                tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            raise UsageError(
                f"{cache} cannot be written ({error.strerror}); set {FOLDER} to a writable folder"
            ) from error
        return found

    @contextmanager
    def in_use(self, key: str) -> Iterator[None]:
        """Lock the build, mark it as just used, and afterwards remove it if it failed. Others wait for their turn."""
        with _locked(self._path(key, "lock")):
            self._path(key, "lock").touch()
            try:
                yield
            finally:
                if not self.complete(key):  # failed builds are rebuilt on request
                    self._remove(key)

    def note(self, key: str) -> None:
        """Record the size of a finished build that is in use. While the cache is too large, evict builds.

        The least recently used go first, also interrupted ones, and none in use.
        """
        self._path(key, "built").write_text(str(folders.size(self.root / key)))
        sizes = {key: self._size(key) for key in self._keys()}
        left = sum(sizes.values())
        for other in sorted(sizes, key=self._used_at):
            if left <= self.most_bytes:
                return
            with _locked(self._path(other, "lock"), wait=False) as held:
                if held:
                    self._remove(other)
                    left -= sizes[other]

    def forget(self, key: str) -> None:
        """Remove a build's files. The caller must hold its lock."""
        self._path(key, "built").unlink(missing_ok=True)
        folders.remove(self.root / key)

    def complete(self, key: str) -> bool:
        """Whether the build is finished."""
        return self._path(key, "built").exists()

    def total(self) -> tuple[int, int]:
        """The number of finished builds and their total size in bytes."""
        sizes = [self._size(key) for key in self._keys() if self.complete(key)]
        return len(sizes), sum(sizes)

    def _remove(self, key: str) -> None:
        """Remove a build and the files beside it. The caller must hold its lock."""
        self.forget(key)
        self._path(key, "lock").unlink()

    def _keys(self) -> set[str]:
        """The keys of all builds, finished or not."""
        return {path.name.partition(".")[0] for path in self.root.glob("*")}

    def _used_at(self, key: str) -> float:
        with suppress(OSError):
            return self._path(key, "lock").stat().st_mtime
        return 0.0

    def _size(self, key: str) -> int:
        with suppress(OSError, ValueError):
            return int(self._path(key, "built").read_text())
        return 0

    def _path(self, key: str, kind: str) -> Path:
        return self.root / f"{key}.{kind}"


@contextmanager
def _locked(path: Path, wait: bool = True) -> Iterator[bool]:
    """Hold the lock of the file at this path. Without `wait`, yield False if it is not free at once."""
    while True:
        with path.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
                return
            # Whoever held the lock before may have removed the file.
            if _is_at(file.fileno(), path):
                yield True
                return


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), there)
