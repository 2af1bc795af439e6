from __future__ import annotations

import pytest

from stark.problems.load import defines_any_part, form_fault

GOOD = """\
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x, y=None):
        return self.linear(x)

def get_inputs():
    return [torch.randn(2, 8)]

def get_init_inputs():
    return [8]
"""


def edited(old: str, new: str) -> str:
    assert 1 == GOOD.count(old)
    return GOOD.replace(old, new)


def test_a_problem_in_the_kernelbench_form_has_no_fault():
    assert form_fault(GOOD) is None


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        (edited("def get_inputs():", "def get_inputs()"), "line 12: expected ':'."),
        (
            edited("class Model(", "class Network("),
            "line 16: Model is missing; add a class `Model(nn.Module)` whose `forward` is the computation.",
        ),
        (
            edited("def get_inputs", "def inputs"),
            "line 16: get_inputs is missing; add a function `get_inputs()` that returns the list of "
            "forward's arguments.",
        ),
        (
            edited("def get_init_inputs", "def init_inputs"),
            "line 16: get_init_inputs is missing; add a function `get_init_inputs()` that returns "
            "the list of Model's arguments (`[]` for none).",
        ),
        (
            "",
            "line 1: Model is missing; add a class `Model(nn.Module)` whose `forward` is the computation.",
        ),
    ],
)
def test_each_fault_is_named_with_its_line(source: str, fault: str):
    assert fault == form_fault(source)


def test_a_null_byte_is_a_fault_and_no_crash():
    assert "null bytes" in (form_fault("x = 1\0") or "")


def test_what_nests_too_deeply_is_a_fault_and_no_crash():
    deep = "x=" + "-" * 100_000 + "1"

    assert (form_fault(deep) or "").startswith("line 1: ")
    assert defines_any_part(deep)


def test_a_long_sum_is_no_fault():
    long = " + ".join(["torch.randn(2, 8)"] * 1_200)

    assert form_fault(edited("return [torch.randn(2, 8)]", f"x = {long}\n    return [x]")) is None


def test_a_part_under_with_is_there():
    assert defines_any_part("with torch.no_grad():\n    def get_inputs(): return []")


def test_words_of_the_form_in_text_are_not_the_form():
    fault = form_fault('"""class Model, get_inputs, get_init_inputs"""\n# class Model(nn.Module)')
    assert fault is not None
    assert fault.startswith("line 2: Model is missing")


def test_a_file_means_to_be_a_problem_when_it_defines_a_part_or_is_broken():
    assert defines_any_part("def get_inputs(): return []")
    assert defines_any_part("class Model(: pass")
    assert not defines_any_part("class ModelNew: pass")


def with_cases(get_inputs: str) -> str:
    """The problem with two cases and these lines in place of `def get_inputs():`."""
    return edited("def get_inputs():", get_inputs) + "\nCASES = {'decode': 3.0, 'prefill': 1.0}\n"


@pytest.mark.parametrize(
    "get_inputs",
    [
        "def get_inputs(case='decode'):",
        "def get_inputs(name='decode', /):",
        "def get_inputs(case=next(iter(CASES))):",
    ],
)
def test_get_inputs_takes_the_name_of_a_case(get_inputs: str):
    assert form_fault(with_cases(get_inputs)) is None


@pytest.mark.parametrize(
    ("get_inputs", "fault"),
    [
        (
            "def get_inputs():",
            "line 12: get_inputs must take the name of a case and nothing else, since the file has CASES",
        ),
        (
            "def get_inputs(case='decode', size=8):",
            "line 12: get_inputs must take the name of a case and nothing else, since the file has CASES",
        ),
        (
            "def get_inputs(case):",
            "line 12: get_inputs has no default, which is the first of CASES",
        ),
        (
            "def get_inputs(case='prefill'):",
            "line 12: get_inputs has the default 'prefill', not the first of CASES",
        ),
        (
            "get_inputs = lambda case='decode': []\ndef other():",
            "line 12: get_inputs is not defined by `def`, but a file with CASES needs that",
        ),
    ],
)
def test_a_file_with_cases_whose_inputs_take_no_name_is_refused(get_inputs: str, fault: str):
    assert f"{fault}; write `def get_inputs(case='decode'):`." == form_fault(with_cases(get_inputs))
