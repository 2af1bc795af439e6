from __future__ import annotations

from dataclasses import replace

import pytest

from stark.core.profile import Profile, Step
from stark.core.reference import Reference
from stark.languages import LANGUAGES, Language
from stark.languages.base import WITHOUT_GRADIENTS
from support.examples import technique_example
from support.nodes import CPU, DEVICE, ROOFLINE, measurement

SOFTMAX = Profile(
    clock="host",
    steps=(Step(name="aten::_softmax", count=1.0, time_ms=0.9, share=1.0, own=False),),
    count=2.0,
    busy_ms=0.9,
    own_share=0.0,
)


def reference(language: Language) -> Reference:
    return Reference(
        device=DEVICE if "cuda" in language.device_kinds else CPU,
        versions={},
        inputs=(),
        outputs=(),
        eager=measurement(1.0),
        roofline=ROOFLINE.model_copy(update={"memory_ms": 0.5}),
        profile=SOFTMAX,
    )


WITH_KERNELS = [entry for entry in LANGUAGES.values() if entry.name != "pytorch"]


@pytest.mark.parametrize("language", WITH_KERNELS, ids=lambda entry: entry.name)
def test_a_plan_and_a_writer_are_shown_different_parts(language: Language) -> None:
    guidance = language.guidance(reference(language))

    assert 2 <= len(guidance.techniques)
    assert guidance.to_plan.startswith(language.form)
    assert guidance.to_write.startswith(language.guide.strip())
    for technique in guidance.techniques:
        assert technique.line in guidance.to_plan
        assert technique_example(technique) not in guidance.to_plan
    for technique in guidance.taught():
        assert technique.text in guidance.to_write


@pytest.mark.parametrize("language", WITH_KERNELS, ids=lambda entry: entry.name)
def test_a_plan_that_names_techniques_gets_those_that_are_known(language: Language) -> None:
    guidance = language.guidance(reference(language))
    first, *_, last = guidance.techniques

    assert (last,) == guidance.taught([last.key, "wishful_thinking"])
    assert (first, last) == guidance.taught([last.key, first.key])
    assert () == guidance.taught([]) == guidance.taught(["wishful_thinking"])


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("language", LANGUAGES.values(), ids=list(LANGUAGES))
def test_a_guide_without_its_examples_keeps_all_else(language: Language, backward: bool) -> None:
    guidance = language.guidance(reference(language), backward)
    headings = [line for line in guidance.guide.split("\n") if line.startswith("## ")]

    shorter = guidance.without_examples

    kept = [line for line in shorter.split("\n") if line.startswith("## ")]
    assert [line for line in headings if not line.startswith("## Example")] == kept
    assert headings != kept
    assert language.form in shorter.replace("runs with gradients enabled", "runs without gradients")


def test_without_techniques_the_guide_is_all() -> None:
    bare = replace(LANGUAGES["cpp"], techniques=())
    guidance = bare.guidance(reference(bare))

    assert (bare.form, bare.guide.strip()) == (guidance.to_plan, guidance.to_write)


def test_pytorch_is_taught_what_a_gpu_can_do_only_for_a_gpu() -> None:
    pytorch = LANGUAGES["pytorch"]
    products = SOFTMAX.model_copy(
        update={"steps": (SOFTMAX.steps[0].model_copy(update={"name": "aten::addmm"}),)}
    )
    on_gpu = reference(pytorch).model_copy(update={"profile": products})
    on_cpu = on_gpu.model_copy(update={"device": CPU})

    assert ["gpu/libraries"] == [each.name for each in pytorch.guidance(on_gpu).techniques]
    assert () == pytorch.guidance(on_cpu).techniques


@pytest.mark.parametrize("language", LANGUAGES.values(), ids=list(LANGUAGES))
def test_gradients_are_taught_only_where_they_are_judged(language: Language) -> None:
    forward, backward = (language.guidance(reference(language), each) for each in (False, True))

    assert "needs_input_grad" not in forward.to_plan + forward.to_write
    assert WITHOUT_GRADIENTS in forward.to_plan
    assert WITHOUT_GRADIENTS not in backward.to_plan + backward.to_write
    for prompt in (backward.to_plan, backward.to_write):
        assert "ctx.save_for_backward" in prompt
        assert "ctx.needs_input_grad" in prompt
    assert f"## Gradients with {language.title}" in backward.to_write
    assert 0 == sum(f"## With {each}" in backward.to_write for each in LANGUAGES)
    assert "class Normalized" not in backward.to_plan


@pytest.mark.parametrize("language", WITH_KERNELS, ids=lambda entry: entry.name)
def test_with_several_cases_a_technique_that_pays_in_any_is_taught(language: Language) -> None:
    memory = reference(language).model_copy(update={"profile": None})
    products = ROOFLINE.model_copy(update={"compute_ms": 5.0, "flops": 10**9})
    compute = memory.model_copy(update={"roofline": products})

    both = memory.model_copy(update={"cases": {"a": memory, "b": compute}})

    alone = [set(language.guidance(one).techniques) for one in (memory, compute)]
    taught = set(language.guidance(both).techniques)
    assert taught <= alone[0] | alone[1]
    assert taught - alone[0]
