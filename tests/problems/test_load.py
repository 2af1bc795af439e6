from __future__ import annotations

from pathlib import Path

import pytest

from stark.core.errors import ProblemError
from stark.problems import load, load_all

SOURCE = """\
class Model(Module):
    def forward(self, x):
        return x

def get_inputs():
    return [1]

def get_init_inputs():
    return []
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder laid out like a checkout of KernelBench."""
    level = tmp_path / "bench" / "KernelBench" / "level1"
    level.mkdir(parents=True)
    for name in ("1_Matmul", "2_Softmax", "10_LogSoftmax"):
        (level / f"{name}.py").write_text(SOURCE)
    return tmp_path / "bench"


def refusal(spec: str | Path, kernelbench: Path | None = None) -> str:
    with pytest.raises(ProblemError) as caught:
        load(str(spec), kernelbench)
    return str(caught.value)


def test_a_file_becomes_a_problem_named_by_its_stem(tmp_path: Path):
    path = tmp_path / "norm.py"
    path.write_text(SOURCE)
    problem = load(str(path))
    assert ("norm", SOURCE) == (problem.name, problem.source)
    assert [problem] == load_all(str(path))


def test_a_byte_order_mark_and_windows_lines_do_not_change_the_problem(tmp_path: Path):
    path = tmp_path / "norm.py"
    path.write_bytes(b"\xef\xbb\xbf" + SOURCE.replace("\n", "\r\n").encode())
    assert SOURCE == load(str(path)).source


@pytest.mark.parametrize("spec", ["level1/2", "level1/2_Softmax", "level1/2_Softmax.py"])
@pytest.mark.parametrize("root", [".", "KernelBench"])
def test_kernelbench_names_resolve_in_a_checkout(checkout: Path, spec: str, root: str):
    assert "level1/2_Softmax" == load(spec, checkout / root).name


def test_a_path_into_a_checkout_gets_the_kernelbench_name(checkout: Path):
    path = checkout / "KernelBench" / "level1" / "2_Softmax.py"
    assert "level1/2_Softmax" == load(str(path)).name


def test_a_level_loads_whole_and_in_the_order_of_its_numbers(checkout: Path):
    names = [problem.name for problem in load_all("level1", checkout)]
    assert ["level1/1_Matmul", "level1/2_Softmax", "level1/10_LogSoftmax"] == names


def test_a_folder_loads_its_problems_and_passes_over_other_files(tmp_path: Path):
    (tmp_path / "b.py").write_text(SOURCE)
    (tmp_path / "a.py").write_text(SOURCE)
    (tmp_path / "notes.py").write_text("ANSWER = 42\n")
    (tmp_path / "README.md").write_text("Model")
    assert ["a", "b"] == [problem.name for problem in load_all(str(tmp_path))]


def test_a_broken_problem_in_a_folder_is_not_passed_over(tmp_path: Path):
    (tmp_path / "a.py").write_text(SOURCE)
    (tmp_path / "b.py").write_text("def get_inputs():\n    return []\n")
    with pytest.raises(ProblemError, match=r"b\.py, line 2: Model is missing"):
        load_all(str(tmp_path))


def test_a_fault_names_the_file_and_the_line(tmp_path: Path):
    path = tmp_path / "norm.py"
    path.write_text("class Model(:\n")
    assert f"{path}, line 1: invalid syntax." == refusal(path)


def test_a_missing_file_suggests_close_names(tmp_path: Path):
    (tmp_path / "softmax.py").write_text(SOURCE)
    path = tmp_path / "sofmax.py"
    assert f"There is no file {path}; there is softmax.py." == refusal(path)
    other = tmp_path / "unlike"
    assert f"There is no file {other}." == refusal(other)
    lost = tmp_path / "nowhere" / "a.py"
    assert f"There is no folder {lost.parent}, so no problem {lost}." == refusal(lost)


@pytest.mark.parametrize("spec", ["~nobody-of-that-name/p.py", "p" * 5000 + ".py"])
def test_a_name_that_can_be_no_file_is_refused(spec: str):
    with pytest.raises(ProblemError, match="cannot be accessed"):
        load(spec)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path):
    path = tmp_path / "norm.py"
    path.write_bytes(b"x = '\xff'")
    assert f"{path} is not UTF-8 text (byte 5); save it as UTF-8." == refusal(path)


def test_a_folder_is_refused_where_one_problem_is_wanted(tmp_path: Path):
    (tmp_path / "a.py").write_text(SOURCE)
    expected = f"{tmp_path} is a folder, not a problem; name one of its files, such as a.py."
    assert expected == refusal(tmp_path)


def test_a_folder_without_problems_is_refused_and_points_further_in(checkout: Path, tmp_path: Path):
    with pytest.raises(ProblemError, match=r"contains no problem file; .*, such as level1\.$"):
        load_all(str(checkout / "KernelBench"))
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ProblemError, match=r"contains no problem file; .* get_init_inputs\.$"):
        load_all(str(empty))


def test_kernelbench_names_that_lead_nowhere_say_why(checkout: Path, tmp_path: Path):
    no_checkout = "give its folder as `kernelbench`"
    assert no_checkout in refusal("level1/2")
    assert "There is no KernelBench checkout at" in refusal("level1/2", tmp_path / "nothing")
    assert f"The KernelBench checkout at {checkout} has no folder level7." == refusal(
        "level7/1", checkout
    )
    assert "KernelBench's level1 has no problem 11; it has 1 to 10." == refusal(
        "level1/11", checkout
    )
    assert (
        "KernelBench's level1 has no problem 2_Softmx; there is 2_Softmax, 10_LogSoftmax."
        == refusal("level1/2_Softmx", checkout)
    )
