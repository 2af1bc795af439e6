from __future__ import annotations

from dataclasses import replace
from importlib.resources import files
from itertools import product
from typing import get_args

import pytest
import technique_samples as samples

from stark.languages import LANGUAGES, Language
from stark.languages.technique import MOST, MOST_CHARACTERS, Technique, fitting, paying, section
from stark.languages.work import Bound, Operator, Work
from stark.problems.load import form_fault

every_technique = pytest.mark.parametrize(
    ("language", "technique"),
    samples.taught(*LANGUAGES),
    ids=[f"{language.name}:{technique.name}" for language, technique in samples.taught(*LANGUAGES)],
)

HOPPER = Work(
    architecture="sm_90",
    bound="memory",
    operators=frozenset(),
    steps=1,
    few_outputs=False,
)
CPU = replace(HOPPER, architecture="x86_64")


def names(language: str, work: Work) -> list[str]:
    return [technique.name for technique in fitting(paying(LANGUAGES[language].techniques, work))]


def with_(work: Work, bound: Bound, *operators: Operator, steps: int = 1) -> Work:
    return replace(work, bound=bound, operators=frozenset(operators), steps=steps)


# What a prompt gets.


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (with_(HOPPER, "memory"), ["triton/wide_access"]),
        (
            with_(HOPPER, "memory", "softmax"),
            ["triton/online_reductions", "triton/wide_access"],
        ),
        (
            with_(HOPPER, "compute", "matmul"),
            ["gpu/libraries", "triton/tensor_cores", "triton/persistent_tma"],
        ),
        (
            with_(HOPPER, "compute", "matmul", "norm", steps=5),
            ["gpu/libraries", "triton/tensor_cores", "triton/fusion"],
        ),
        (
            with_(HOPPER, "compute", "conv", steps=3),
            ["gpu/libraries", "triton/fusion"],
        ),
        (
            with_(HOPPER, "launch", "conv", "norm", "matmul", steps=20),
            ["gpu/cuda_graphs", "gpu/libraries", "triton/fusion"],
        ),
        (with_(HOPPER, "launch"), []),
    ],
    ids=["relu", "softmax", "product", "product and chain", "conv", "small network", "one step"],
)
def test_triton_on_hopper_is_taught_what_binds_and_what_is_called(
    work: Work, expected: list[str]
) -> None:
    assert expected == names("triton", work)


def test_few_outputs_call_for_a_split_of_the_shared_dimension() -> None:
    thin = replace(with_(HOPPER, "memory", "matmul"), few_outputs=True)

    assert ["gpu/libraries", "triton/split_k", "triton/wide_access"] == names("triton", thin)
    assert "cuda/split_k" in names("cuda", thin)
    assert "triton/split_k" not in names("triton", replace(thin, few_outputs=False))


@pytest.mark.parametrize(
    ("architecture", "known"),
    [("sm_80", False), ("sm_89", False), ("sm_90", True), ("sm_90a", True), ("sm_120", True)],
)
def test_what_only_hopper_has_is_taught_from_hopper_on(architecture: str, known: bool) -> None:
    product = replace(with_(HOPPER, "compute", "matmul"), architecture=architecture)

    assert known == ("triton/persistent_tma" in names("triton", product))


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (with_(CPU, "memory", "norm", steps=4), ["memory_traffic", "simd", "threads"]),
        (with_(CPU, "compute", "matmul"), ["blocking", "simd", "threads"]),
        (with_(CPU, "memory", "conv"), ["blocking", "memory_traffic", "simd"]),
        (with_(CPU, "launch", "matmul", steps=3), ["small_problems", "simd"]),
    ],
    ids=["norm", "product", "depthwise", "small"],
)
def test_a_cpu_is_taught_what_binds(work: Work, expected: list[str]) -> None:
    assert [f"cpp/{name}" for name in expected] == names("cpp", work)


@pytest.mark.parametrize("language", LANGUAGES.values(), ids=list(LANGUAGES))
def test_no_prompt_gets_more_than_its_share(language: Language) -> None:
    operators = [
        frozenset(),
        frozenset({"matmul"}),
        frozenset({"norm"}),
        frozenset(get_args(Operator)),
    ]
    longest = 0
    for bound, called, steps, few in product(get_args(Bound), operators, (1, 2, 50), (False, True)):
        work = replace(HOPPER, bound=bound, operators=called, steps=steps, few_outputs=few)
        chosen = fitting(paying(language.techniques, work))
        longest = max(longest, sum(len(technique.text) for technique in chosen))
        assert MOST >= len(chosen) == len(set(chosen))
    assert MOST_CHARACTERS >= longest > 0


def test_a_technique_that_does_not_fit_is_left_out_for_a_later_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lengths = {"long": MOST_CHARACTERS - 10, "middling": 11, "short": 10}
    monkeypatch.setattr(Technique, "text", property(lambda self: "x" * lengths[self.name]))

    chosen = fitting(Technique(name) for name in lengths)

    assert ["long", "short"] == [technique.name for technique in chosen]


# What every technique has.


@every_technique
def test_a_technique_has_its_parts_and_a_candidate_that_may_be_one(
    language: Language, technique: Technique
) -> None:
    assert 2 < len(technique.title) < 70
    assert technique.line.startswith(f"- `{technique.key}`: {technique.title}. ")
    assert "```" not in technique.line + technique.traps
    assert 60 < len(technique.line) < 330
    assert language.check(samples.candidate_of(technique, language).source) is None
    assert 9000 > len(technique.text)


@every_technique
def test_a_technique_has_a_problem_that_its_example_solves(
    language: Language, technique: Technique
) -> None:
    assert form_fault(samples.problem_of(technique).source) is None


def test_every_file_of_a_technique_is_taught_by_a_language() -> None:
    folder = files("stark.languages").joinpath("techniques")
    there = {
        f"{kind.name}/{file.name.removesuffix('.md')}"
        for kind in folder.iterdir()
        for file in kind.iterdir()
    }
    assert there == {technique.name for _, technique in samples.taught(*LANGUAGES)}
    problems = {
        path.relative_to(samples.PROBLEMS).with_suffix("").as_posix()
        for path in samples.PROBLEMS.rglob("*.py")
    }
    assert there == problems


def test_the_keys_of_a_language_are_unique() -> None:
    for language in LANGUAGES.values():
        keys = [technique.key for technique in language.techniques]
        assert len(set(keys)) == len(keys)


def test_a_section_is_what_stands_under_its_heading() -> None:
    guide = "# Title\n\n## One\nfirst\n\n## Two\nsecond\n"

    assert "first" == section(guide, "One")
    assert "second" == section(guide, "Two")
    with pytest.raises(ValueError, match="no section 'Three'"):
        section(guide, "Three")
