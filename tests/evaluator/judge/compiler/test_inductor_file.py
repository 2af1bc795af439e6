from __future__ import annotations

import ast

import inductor_samples as samples
import pytest

from stark.evaluator.candidate.generating import NotGenerated
from stark.evaluator.judge.compiler.inductor_file import read_generated, renamed
from stark.languages import language


def text_of(code: str) -> str:
    return "\n".join(piece.text for piece in read_generated(code))


def test_the_kernels_and_the_function_are_kept_and_nothing_else() -> None:
    pieces = read_generated(samples.CPP)

    assert ["import torch", "from torch._inductor.async_compile import AsyncCompile"] == [
        piece.text for piece in pieces if piece.is_import
    ]
    names = [name for piece in pieces if not piece.is_import for name in sorted(piece.binds)]
    assert ["assert_size_stride", "async_compile", "cpp_fused_mul_0", "call"] == names
    assert ["async_compile.wait(globals())", "del async_compile"] == [
        piece.text for piece in pieces if not piece.binds
    ]
    (function,) = [piece for piece in pieces if "call" in piece.binds]
    assert function.text.startswith("def call(args):\n    arg0_1, = args\n    args.clear()\n")


def test_the_class_stays_where_the_function_needs_it() -> None:
    code = samples.generated_file("", "return self.partitions[0](args)")

    names = {name for piece in read_generated(code) for name in piece.binds}

    assert {"Runner", "runner", "call"} <= names
    assert "get_args" not in names


def test_triton_kernels_are_written_out_so_that_no_device_is_needed_to_import_them() -> None:
    kernels = [samples.triton_kernel(name) for name in ("triton_poi_0", "triton_poi_1")]
    text = text_of(samples.triton_file(*kernels))

    assert "async_compile" not in text
    assert "set_driver_to_gpu" not in text
    assert 2 == text.count("filename=__file__"), "without one a kernel takes a single configuration"
    assert 2 == text.count("'autotune_local_cache': False"), "it may not write beside its file"
    assert 1 == text.count("def _triton_helper_fn_add0"), "both kernels have the same"
    assert 1 == text.count("import triton.language as tl")
    assert "\n@triton.jit\ndef triton_poi_1(" in text
    assert language("triton").check(f"{text}\nclass ModelNew: ...\n") is None


def test_two_different_parts_of_one_name_are_refused() -> None:
    other = samples.triton_kernel("triton_poi_1", helper="    return a * b")

    with pytest.raises(NotGenerated, match="defines _triton_helper_fn_add0 twice"):
        read_generated(samples.triton_file(samples.triton_kernel("triton_poi_0"), other))


def test_a_name_that_is_taken_gets_another_and_texts_keep_theirs() -> None:
    kernel = samples.triton_kernel("triton_poi_0")
    body = "x = torch.ops.aten.rand(device=device('cpu'), call=1)\nreturn x.call.device"
    pieces = read_generated(samples.generated_file("", body)) + read_generated(samples.CPP)[-4:]

    texts, called = renamed(pieces, {"call", "device", "compiled_call", "Model", kernel})

    text = "\n".join(piece.text for piece in texts)
    ast.parse(text)
    assert "compiled_call_" == called
    assert "def compiled_call_(args):" in text
    assert "from torch import device as compiled_device" in text
    assert "rand(device=compiled_device('cpu'), call=1)" in text
    assert "return x.call.device" in text
    assert "/* call device */" in text
