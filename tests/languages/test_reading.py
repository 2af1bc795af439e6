from __future__ import annotations

import ast

import pytest

from stark.languages.reading import names_used


@pytest.mark.parametrize(
    "source",
    [
        "import tvm_ffi.cpp\ntvm_ffi.cpp.load_inline()",
        "import tvm_ffi.cpp as ffi\nffi.load_inline()",
        "from tvm_ffi import cpp\ncpp.load_inline()",
        "from tvm_ffi.cpp import load_inline as build\nbuild()",
        "from tvm_ffi.cpp import *\nload_inline()",
        "def f():\n    from tvm_ffi.cpp import load_inline\n    return load_inline",
    ],
)
def test_a_name_is_found_under_every_form_of_import(source: str):
    assert "tvm_ffi.cpp.load_inline" in names_used(ast.parse(source))


def test_text_that_names_a_function_is_no_use_of_it():
    source = '"""tvm_ffi.cpp.load_inline"""\n# tvm_ffi.cpp.load_inline()\nx = "load_inline"'
    assert frozenset() == names_used(ast.parse(source))
