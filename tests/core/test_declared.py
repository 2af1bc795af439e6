from __future__ import annotations

import pytest

from stark.core.declared import Declared, declared


def test_a_file_without_constants_has_one_case_and_no_gradients() -> None:
    assert Declared() == declared("class Model: ...\n")


def test_constants_are_read_without_running_the_file() -> None:
    found = declared(
        'CASES = {"prefill": 1, "decode": 3.5}\nOBJECTIVE: str = "worst"\nBACKWARD = True\n'
        'ORIGINAL = {"name": "pkg:Block", "arguments": ["x"], "constants": {"scale": "2.0"}}\n'
        "raise SystemExit\n"
    )

    assert {"prefill": 1.0, "decode": 3.5} == found.cases
    assert ("worst", True) == (found.objective, found.backward)
    assert found.original is not None
    assert (("x",), {"scale": "2.0"}) == (found.original.arguments, found.original.constants)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("\nCASES = make()", "line 2: CASES is not a literal"),
        ("CASES = {'a': 0}", "line 1: CASES: Value error, the weight of 'a' is 0.0"),
        ("CASES = {'a': float('nan')}", "CASES is not a literal"),
        ("OBJECTIVE = 'mean'", "line 1: OBJECTIVE: Input should be 'geomean' or 'worst'"),
        ("ORIGINAL = {'name': 'a:B'}", "line 1: ORIGINAL arguments: Field required"),
    ],
)
def test_another_form_is_refused_with_its_line(source: str, said: str) -> None:
    with pytest.raises(ValueError, match="line ") as caught:
        declared(source)

    assert said in str(caught.value)
