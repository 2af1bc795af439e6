from __future__ import annotations

from pathlib import Path

import pytest

from stark.benches.suite import folders, kernelbench
from stark.core.errors import ProblemError, UsageError

PROBLEM = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x
def get_inputs():
    return [torch.ones(2)]
def get_init_inputs():
    return []
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A made-up checkout with two levels of a few problems each."""
    for level, names in {"level1": ("1_a", "2_b", "10_c"), "level2": ("1_d", "2_e")}.items():
        folder = tmp_path / "KernelBench" / level
        folder.mkdir(parents=True)
        for name in names:
            (folder / f"{name}.py").write_text(PROBLEM)
    return tmp_path


def test_whole_levels_are_in_the_order_of_their_numbers(checkout: Path) -> None:
    suite = kernelbench(checkout, [1, 2], None)

    assert "kernelbench" == suite.name
    assert ["level1"] * 3 + ["level2"] * 2 == [member.level for member in suite.members]
    assert [f"level1/{name}" for name in ("1_a", "2_b", "10_c")] == [
        member.problem.name for member in suite.members[:3]
    ]


def test_numbers_are_taken_from_each_level_in_the_order_asked_for(checkout: Path) -> None:
    suite = kernelbench(checkout, [1, 2], [2, 1])

    assert ["level1/2_b", "level1/1_a", "level2/2_e", "level2/1_d"] == [
        member.problem.name for member in suite.members
    ]


def test_a_number_that_a_level_lacks_is_refused(checkout: Path) -> None:
    with pytest.raises(ProblemError, match="level2 has no problem 10"):
        kernelbench(checkout, [1, 2], [10])


def test_a_level_is_read_from_the_checkout_even_if_a_folder_has_its_name(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "level1").mkdir(parents=True)
    (elsewhere / "level1" / "7_other.py").write_text(PROBLEM)
    monkeypatch.chdir(elsewhere)

    assert 3 == len(kernelbench(checkout, [1], None).members)


def test_a_problem_that_is_the_same_in_two_folders_is_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "relu.py").write_text(PROBLEM)

    with pytest.raises(
        UsageError, match="relu has the same content in 2 folders; list only one of these files"
    ):
        folders([tmp_path / "one", tmp_path / "two"])


def test_a_folder_with_the_name_of_the_totals_is_refused(tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "relu.py").write_text(PROBLEM)

    with pytest.raises(UsageError, match="rename that folder"):
        folders([tmp_path / "all"])


def test_a_files_level_is_the_name_of_its_folder(checkout: Path) -> None:
    levels = checkout / "KernelBench"

    suite = folders([levels / "level1", levels / "level2" / "2_e.py"])

    assert "level1-level2" == suite.name
    assert [3, 1] == [
        [member.level for member in suite.members].count(level) for level in ("level1", "level2")
    ]


def test_a_problem_is_listed_once(checkout: Path) -> None:
    folder = checkout / "KernelBench" / "level1"

    with pytest.raises(UsageError, match="level1/1_a of level1 is listed 2 times"):
        folders([folder, folder / "1_a.py"])
