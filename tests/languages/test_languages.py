"""What every registered language must keep, and the registry itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from stark.core.errors import UsageError
from stark.languages import LANGUAGES, Language, best_for, language
from stark.problems.load import form_fault
from support.examples import guide_example

every_language = pytest.mark.parametrize("entry", LANGUAGES.values(), ids=list(LANGUAGES))


@every_language
def test_a_guide_has_one_whole_problem_and_one_candidate_that_passes_its_own_check(entry: Language):
    problem, candidate = guide_example(entry)
    assert form_fault(problem.source) is None
    assert entry.name == candidate.language
    assert entry.check(candidate.source) is None


def test_all_guides_work_the_same_problem():
    assert 1 == len({guide_example(entry).problem.digest for entry in LANGUAGES.values()})


@every_language
def test_a_guide_is_short_and_tells_the_rules_that_all_languages_share(entry: Language):
    assert 180 > len(entry.guide.splitlines())
    for word in (
        "ModelNew",
        "load_state_dict",
        ".contiguous()",
        "2e-5",
        "change these inputs as the reference does",
    ):
        assert word in entry.guide


@every_language
def test_a_candidate_of_no_language_is_told_why(entry: Language):
    source = guide_example(entry).candidate.source
    assert "The file does not parse: line 1: '(' was never closed." == entry.check("f(")
    deep = entry.check("x=" + "-" * 100_000 + "1")
    assert deep is not None and deep.startswith("The file does not parse: ")
    assert "null bytes" in (entry.check("\0") or "")
    renamed = source.replace("class ModelNew", "class Model")
    assert "The file does not define a class ModelNew at its top level." == entry.check(renamed)
    plain = (
        'class ModelNew:\n    """Uses load_inline and @triton.jit."""  # tvm_ffi.cpp.load_inline'
    )
    assert (entry.check(plain) is None) == (entry.name == "pytorch")


@every_language
def test_honest_code_may_say_any_word(entry: Language):
    words = "# pass, eval, exec, torch.compile, time.sleep, try: except: timing cache\n"
    quoted = 'NOTE = "the forward pass of <<<kernel>>> bypasses @triton.jit, cuda_sources=None"\n'
    assert entry.check(words + quoted + guide_example(entry).candidate.source) is None


@every_language
def test_builds_and_caches_go_into_the_given_folder(entry: Language, tmp_path: Path):
    variables = entry.environment(tmp_path, None)
    folders = {name: value for name, value in variables.items() if str(tmp_path) in value}
    assert 2 <= len(folders)
    assert all(Path(value).is_relative_to(tmp_path) for value in folders.values())
    assert not [name for name in variables if name.endswith("ARCH_LIST")]


@every_language
def test_the_toolchain_names_every_tool_once(entry: Language):
    assert len(entry.tools) == len(entry.toolchain().split("; "))


@every_language
def test_a_bare_machine_is_told_what_it_lacks_and_how_to_get_it(
    entry: Language, monkeypatch: pytest.MonkeyPatch
):
    for name in ("CXX", "CC", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("stark.languages.tools.shutil.which", lambda *_, **__: None)
    monkeypatch.setattr("stark.languages.tools._version_line", lambda *_: None)
    monkeypatch.setattr("stark.languages.tools.USUAL_CUDA_HOME", "/nonexistent")
    monkeypatch.setattr("stark.languages.tools.find_spec", lambda _: None)
    first = entry.tools[0]
    assert f"This machine lacks {first.name}; {first.remedy}." == entry.missing()
    assert entry.toolchain().split("; ")[0] == f"without {first.name}"


def test_a_language_is_found_by_name_and_an_unknown_one_lists_them():
    assert LANGUAGES["cuda"] is language("cuda")
    with pytest.raises(
        UsageError,
        match=r"no language 'rust'; choose one of cpp, triton, cuda, gluon, cutedsl, pytorch$",
    ):
        language("rust")


def test_a_device_gets_the_first_language_that_the_machine_can_build(
    monkeypatch: pytest.MonkeyPatch,
):
    assert "cpp" == best_for("cpu").name
    monkeypatch.setattr(Language, "missing", lambda entry: None)
    assert "triton" == best_for("cuda").name
    monkeypatch.setattr(
        Language, "missing", lambda entry: None if entry.name == "cuda" else "Triton is not here"
    )
    assert "cuda" == best_for("cuda").name
    assert "triton" == best_for("cuda", here=False).name
    monkeypatch.setattr(Language, "missing", lambda entry: "nothing is here")
    assert "triton" == best_for("cuda").name
