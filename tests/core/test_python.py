from __future__ import annotations

import ast
import gc

import pytest

from stark.core.python import bindings, parse_python


def names(source: str) -> list[str]:
    return [name for name, _ in bindings(ast.parse(source))]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("f(", "never closed"),
        ("a = '\0'", "null bytes"),
        ("a = '\udc80'", "surrogates not allowed"),
        ("x = " + "-" * 100_000 + "1", "nested too deeply|too many nested"),
        ("x = " + " + ".join(["y"] * 20_000), "nested too deeply"),
    ],
)
def test_whatever_does_not_parse_is_a_syntax_error(source: str, reason: str) -> None:
    with pytest.raises(SyntaxError, match=reason):
        parse_python(source)


@pytest.mark.filterwarnings("error")
def test_parsing_prints_no_warning() -> None:
    assert isinstance(parse_python(r"a = '\d'"), ast.Module)


class Parses:
    """Garbage that parses when it is collected."""

    def __init__(self, done: list[bool]) -> None:
        self.itself, self.done = self, done

    def __del__(self) -> None:
        ast.parse("x = [1, (2, 3)]")
        self.done.append(True)


def test_a_finalizer_that_parses_does_no_harm() -> None:
    source = "def f(a, b):\n    return [a + b * 3 for _ in range(3)]\n" * 300
    done: list[bool] = []
    gc.disable()
    usual = gc.get_threshold()
    try:
        Parses(done)
        gc.set_threshold(500)
        gc.enable()
        parsed = parse_python(source)
    finally:
        gc.set_threshold(*usual)
        gc.enable()
    gc.collect()
    assert [True] == done
    assert 300 == len(parsed.body)


@pytest.mark.parametrize(
    "source",
    [
        "class ModelNew: pass",
        "def ModelNew(): pass",
        "ModelNew = make()",
        "ModelNew: type = make()",
        "ModelNew, other = make()",
        "from x import Fast as ModelNew",
        "import ModelNew.fast",
        "if True:\n    class ModelNew: pass",
        "try:\n    import x\nexcept ImportError:\n    pass\nelse:\n    class ModelNew: pass",
        "try:\n    import x\nexcept ImportError:\n    class ModelNew: pass",
        "try:\n    import x\nfinally:\n    class ModelNew: pass",
        "with torch.no_grad():\n    class ModelNew: pass",
        "match kind:\n    case 1:\n        class ModelNew: pass",
    ],
)
def test_a_top_level_name_is_found_however_it_is_bound(source: str) -> None:
    assert "ModelNew" in names(source)


@pytest.mark.parametrize(
    "source",
    [
        "def make():\n    class ModelNew: pass",
        "class A:\n    ModelNew = 1",
        "made = [ModelNew for ModelNew in all_of_them]",
        "make = lambda: (ModelNew := 1)",
        "ModelNew: type",
        "from x import ModelNew as Fast",
        "models.ModelNew = 1",
    ],
)
def test_what_is_bound_elsewhere_or_nowhere_is_not_found(source: str) -> None:
    assert "ModelNew" not in names(source)


def test_names_come_in_order_each_with_what_binds_it() -> None:
    source = "try:\n    from x import a\nexcept ImportError:\n    def a(): pass\nb = 1"

    found = list(bindings(ast.parse(source)))

    assert ["a", "a", "b"] == [name for name, _ in found]
    assert [ast.ImportFrom, ast.FunctionDef, ast.Name] == [type(node) for _, node in found]


def test_what_a_long_sum_binds_is_found() -> None:
    assert ["x"] == names("x = " + " + ".join(["y"] * 1_200))
