"""Whether a result can be written where it is to go: tried before anything is paid for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

from stark.core.errors import UsageError


def check_file(path: Path) -> None:
    """Try to write to a file, which stays as it is, or to the folder that it goes to. Raises UsageError."""
    with _refused(path):
        if path.exists():
            path.open("ab").close()
            return
    check_folder(path.parent)


def check_folder(folder: Path) -> None:
    """Make a folder, and try to write to it. Raises UsageError."""
    with _refused(folder):
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()


@contextmanager
def _refused(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"nothing can be written to {place}: {error.strerror}; choose another --output"
        ) from error
