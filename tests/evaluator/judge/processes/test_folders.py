from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from stark.evaluator.judge.processes import folders


def test_a_copy_has_files_folders_links_and_times_and_nothing_else(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "inner").mkdir(parents=True)
    (source / "inner" / "file").write_text("text")
    os.utime(source / "inner" / "file", ns=(1_000_000_001, 2_000_000_003))
    (source / "link").symlink_to("/etc/hostname")
    (source / "folder").symlink_to("/etc")
    os.mkfifo(source / "pipe")

    folders.copy(source, tmp_path / "copy")

    copy = tmp_path / "copy"
    assert ["folder", "inner", "link"] == sorted(path.name for path in copy.iterdir())
    assert "text" == (copy / "inner" / "file").read_text()
    assert 2_000_000_003 == (copy / "inner" / "file").stat().st_mtime_ns
    assert Path("/etc/hostname") == (copy / "link").readlink()


@pytest.mark.slow
def test_a_deep_and_locked_folder_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    before = Path.cwd()
    os.chdir(folder)
    try:
        for _ in range(1500):
            Path("deeper").mkdir()
            os.chdir("deeper")
    finally:
        os.chdir(before)
    (folder / "locked").mkdir(mode=0)

    folders.remove(folder)

    assert not folder.exists()


def test_a_folder_that_is_not_there_needs_no_removing(tmp_path: Path) -> None:
    folders.remove(tmp_path / "none")


@pytest.mark.parametrize(
    ("bound", "value", "said"),
    [
        ("MAX_FILES", 2, "more than 2 files"),
        ("MAX_BYTES", 10, "more than 0.0 GB"),
        ("MAX_DEPTH", 1, "folders nested more than 1 deep"),
    ],
)
def test_too_much_is_said(
    bound: str, value: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "file").write_bytes(b"x" * 20)

    assert folders.excess(tmp_path) is None
    monkeypatch.setattr(folders, bound, value)
    assert said == folders.excess(tmp_path)


def test_a_smaller_limit_can_be_asked_for(tmp_path: Path) -> None:
    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", 2 << 30)

    assert folders.excess(tmp_path) is None
    assert "more than 0.5 GB" == folders.excess(tmp_path, most=512 << 20)


@pytest.fixture
def of_nobody() -> Iterator[Path]:
    """A folder of the user that runs the test, who is not root: root may read every folder."""
    folder, user = Path(tempfile.mkdtemp()), os.geteuid()
    if user == 0:
        os.chown(folder, 65534, -1)
        os.seteuid(65534)
    yield folder
    os.seteuid(user)
    for hidden in ("all", "sizes"):
        (folder / hidden).chmod(0o700)
    shutil.rmtree(folder)


def test_a_folder_that_hides_its_files_is_too_much_and_one_that_is_gone_is_not(
    of_nobody: Path,
) -> None:
    for name in ("all", "sizes"):
        (of_nobody / name).mkdir()
        (of_nobody / name / "file").write_bytes(b"x" * 20)
    said = "folders that cannot be read (Permission denied)"

    assert folders.excess(of_nobody) is None
    for name, mode in {"all": 0o000, "sizes": 0o400}.items():
        (of_nobody / name).chmod(mode)
        assert said == folders.excess(of_nobody), name
        assert folders.size(of_nobody) == 20
        (of_nobody / name).chmod(0o700)
    assert folders.excess(of_nobody / "gone") is None


def test_a_path_that_is_too_long_hides_nothing(tmp_path: Path) -> None:
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        for _ in range(20):
            Path("n" * 250).mkdir()
            os.chdir("n" * 250)
        Path("file").write_bytes(b"x" * 20)
    finally:
        os.chdir(before)

    assert "folders that cannot be read (File name too long)" == folders.excess(tmp_path)
    folders.remove(tmp_path)
