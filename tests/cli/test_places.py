from __future__ import annotations

from pathlib import Path

import pytest

from stark.cli.places import beside, check_file, check_folder, kernel_path, refuse_fleeting
from stark.core.errors import UsageError


def test_a_file_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "there" / "kernel.py"
    file.parent.mkdir()
    file.write_text("mine")

    check_file(file)

    assert "mine" == file.read_text()
    assert [file] == list(file.parent.iterdir())


def test_a_file_that_is_not_there_is_not_made_but_its_folder_is(tmp_path: Path) -> None:
    check_file(tmp_path / "new" / "kernel.py")

    assert [] == list((tmp_path / "new").iterdir())


@pytest.mark.parametrize("place", ["/proc/x/kernel.py", "file/kernel.py", "folder"])
def test_where_nothing_can_be_written_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()

    with pytest.raises(UsageError, match=r"nothing can be written to .*; choose another --output"):
        check_file(tmp_path / place)


def test_a_report_has_a_folder(tmp_path: Path) -> None:
    check_folder(tmp_path / "report")

    assert (tmp_path / "report").is_dir()
    with pytest.raises(UsageError, match="nothing can be written to /proc/x"):
        check_folder(Path("/proc/x"))


@pytest.mark.parametrize(
    ("store", "folder"),
    [
        ("sqlite:///.stark/stark.db", ".stark"),
        ("sqlite:///runs.db", "."),
        ("sqlite:////data/runs.db?timeout=5&note=a/b", "/data"),
        ("postgresql+psycopg://box/stark", ".stark"),
    ],
)
def test_results_lie_beside_the_store(store: str, folder: str) -> None:
    refuse_fleeting(store)

    assert Path(folder) == beside(store)


@pytest.mark.parametrize(
    "store", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:///file::memory:"]
)
def test_a_store_in_memory_is_refused(store: str) -> None:
    with pytest.raises(UsageError, match="is in memory and would be gone"):
        refuse_fleeting(store)


def test_a_kernels_file_can_be_imported() -> None:
    stem = kernel_path("sqlite:///runs.db", "23-softmax-stark:ucb-1-c643").stem

    assert "kernel_23_softmax_stark_ucb_1_c643" == stem
    assert stem.isidentifier()
