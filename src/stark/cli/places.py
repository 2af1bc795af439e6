"""Where results are written. Whether they can be written is checked before anything is paid for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

from stark.core.errors import UsageError


def check_file(path: Path, option: str = "--output") -> None:
    """Check that a file can be written, without changing it. Raises UsageError."""
    with _refused(path, option):
        if path.exists():
            path.open("ab").close()
            return
    check_folder(path.parent, option)


def check_folder(folder: Path, option: str = "--output") -> None:
    """Create a folder and check that files can be written there. Raises UsageError."""
    with _refused(folder, option):
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()


@contextmanager
def _refused(place: Path, option: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"nothing can be written to {place}: {error.strerror}; choose another {option}"
        ) from error


def refuse_fleeting(store: str) -> None:
    """Raise UsageError for a store in memory: nothing in it could be shown or resumed after the command has ended."""
    if store.startswith("sqlite") and _folder(store) is None:
        raise UsageError(
            f"the store {store} is in memory and would be gone when the command ends; name a file, such as "
            "sqlite:///runs.db"
        )


def beside(store: str) -> Path:
    """Where results go by default: beside the store's file, else in `.stark`."""
    return _folder(store) or Path(".stark")


def check_beside(store: str) -> None:
    """Check that files can be written where the store is, or will be; creates no folder. Raises UsageError."""
    folder = beside(store).absolute()
    existing = next(each for each in (folder, *folder.parents) if each.is_dir())
    with _refused(existing, "--store"):
        TemporaryFile(dir=existing).close()


def kernel_path(store: str, run_id: str) -> Path:
    """Where a run's kernel goes by default, under a name that Python can import."""
    name = re.sub(r"\W", "_", run_id)
    return beside(store) / "kernels" / f"{'kernel_' if name[:1].isdigit() else ''}{name}.py"


def _folder(store: str) -> Path | None:
    """The folder of a store's file; None for a store in memory or on a server."""
    scheme, _, rest = store.partition("://")
    path = rest.removeprefix("/").partition("?")[0]
    on_disk = scheme.startswith("sqlite") and path != "" and ":memory:" not in path
    return Path(path).parent if on_disk else None
