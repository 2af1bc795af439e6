from __future__ import annotations

import pytest

from stark.agents.spans import Layout, Span, parse_python

CUDA = '''\
import torch
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>

#define TILE 16
#define EACH(n) \\
  for (int i = 0; i < n; ++i)

template <typename T, int N>
__global__ void __launch_bounds__(256) scale(const T* __restrict__ x, T* y, int n) {
  __shared__ T tile[N];  // one row
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  #pragma unroll
  for (int j = 0; j < 4; ++j) {
    y[i] = x[i];
  }
#ifdef FAST
  fast();
#else
  slow();
#endif
  if (i < n)
    y[i] = 2;
  else
    y[i] = 3;
}

torch::Tensor launch(torch::Tensor x) {
  const char* brace = R"(unclosed { ( )";
  auto y = torch::empty_like(x);
  scale<float, 16><<<grid, block, 0, stream>>>(
      x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "scale", ([&] {
    scale<scalar_t, 8><<<grid, block>>>(x.data_ptr<scalar_t>(), n);
  }));
  switch (n) {
    case 1:
      one();
      break;
    default:
      more();
  }
  return y;
}
"""

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.empty_like(x)
'''

PYTHON = '''\
import triton


@triton.autotune(
    configs=[triton.Config({"BLOCK": 128})],
    key=["n"],
)
@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    """Adds one.

    Row by row.
    """
    i = tl.arange(0, BLOCK)  # lanes
    mask = i < n
    value = tl.load(
        x + i,
        mask=mask,
    )

    # write back
    tl.store(y + i, value, mask=mask)


def choose(n):
    if n > 1:
        a = 1; b = 2
    elif n > 0:
        a = 3
    else:
        a = 4
    for k in range(n): a += k
    try:
        run()
    except ValueError:
        stop()
    finally:
        close()
    match n:
        case 1:
            one()
        case _:
            other()
    with open("f") as f:
        f.read()
    return a
'''


def test_odd_programs_have_a_layout_too() -> None:
    assert (3, 3) == Layout('"""half a character:\n\\ud800"""\nx = 1\n').whole(3, 3)


def line(source: str, text: str, nth: int = 1) -> int:
    """The number of the nth line that contains a text."""
    return [n for n, row in enumerate(source.split("\n"), start=1) if text in row][nth - 1]


def span_between(source: str, begins: str, ends: str) -> Span:
    first = line(source, begins)
    rows = source.split("\n")
    return Span(first, next(n for n in range(first, len(rows)) if ends in rows[n - 1]))


@pytest.mark.parametrize(
    ("begins", "ends"),
    [
        ("import triton", "import triton"),
        ("@triton.autotune", "tl.store"),  # with its decorators
        ("i = tl.arange", "mask = i < n"),
        ("value = tl.load(", "    )"),
        ("# write back", "tl.store"),  # a comment line before
        ("value = tl.load(", "# write back"),  # and one after
        ("if n > 1", "a = 4"),
        ("a = 1; b = 2", "a = 1; b = 2"),
        ("a = 3", "a = 3"),
        ("a = 4", "a = 4"),
        ("for k in range(n): a += k", "for k in range(n): a += k"),
        ("try:", "close()"),
        ("stop()", "stop()"),
        ("one()", "one()"),
        ("f.read()", "f.read()"),
        ("def choose", "return a"),
        ("import triton", "return a"),
    ],
)
def test_whole_python_statements_stay_as_they_are(begins: str, ends: str) -> None:
    span = span_between(PYTHON, begins, ends)

    assert span == Layout(PYTHON).whole(*span)


@pytest.mark.parametrize(
    ("begins", "ends", "whole"),
    [
        ("@triton.jit", "tl.store", (4, 22)),
        ("x + i,", "mask=mask,", (16, 19)),
        ("i = tl.arange", "x + i,", (14, 19)),
        ("elif n > 0", "a = 3", (26, 31)),
        ("else:", "a = 4", (26, 31)),
        ("a = 4", "for k in", (26, 32)),
        ("except ValueError", "stop()", (33, 38)),
        ("case 1", "one()", (39, 43)),
    ],
)
def test_a_cut_python_statement_is_widened(begins: str, ends: str, whole: tuple[int, int]) -> None:
    assert whole == Layout(PYTHON).whole(*span_between(PYTHON, begins, ends))


def test_blank_lines_and_comments_hold_no_statement() -> None:
    first = line(PYTHON, "# write back")

    assert None is Layout(PYTHON).whole(first - 1, first)


@pytest.mark.parametrize(
    ("first", "last", "begins"),
    [
        (1, 51, "import torch"),
        (4, 47, "cuda_source = "),
        (5, 5, "#include"),
        (5, 7, "#include"),
        (5, 46, "#include"),
        (8, 9, "#define EACH"),
        (11, 28, "template"),
        (11, 29, "template"),  # a blank line after
        (13, 14, "__shared__"),
        (15, 18, "#pragma unroll"),
        (16, 18, "for (int j"),
        (17, 17, "y[i] = x[i]"),
        (19, 23, "#ifdef"),
        (22, 22, "slow()"),
        (24, 27, "if (i < n)"),
        (31, 32, "const char* brace"),
        (33, 34, "scale<float, 16><<<grid"),
        (35, 37, "AT_DISPATCH"),
        (36, 36, "scale<scalar_t, 8><<<grid"),
        (38, 44, "switch"),
        (39, 41, "case 1"),
        (40, 41, "one()"),
    ],
)
def test_whole_embedded_statements_stay_as_they_are(first: int, last: int, begins: str) -> None:
    assert CUDA.split("\n")[first - 1].strip().startswith(begins)

    assert (first, last) == Layout(CUDA).whole(first, last)


@pytest.mark.parametrize(
    ("first", "last", "whole"),
    [
        (12, 12, (12, 28)),
        (16, 17, (16, 18)),
        (17, 18, (16, 18)),
        (32, 33, (32, 34)),
        (34, 34, (33, 34)),
        (36, 37, (35, 37)),
        (4, 6, (4, 47)),  # the opening quotes belong to Python
        (46, 47, (4, 47)),
    ],
)
def test_a_cut_embedded_statement_is_widened(first: int, last: int, whole: tuple[int, int]) -> None:
    assert whole == Layout(CUDA).whole(first, last)


def embedded(*rows: str, prefix: str = "r") -> Layout:
    """A file with these rows in a string: row n, from 1, is line n + 1."""
    return Layout(f'source = {prefix}"""\n' + "\n".join(rows) + '\n"""\n')


def test_statements_that_share_a_line_count_as_one() -> None:
    layout = embedded("int a = 0; int b = f(", "    a);", "int c;")

    assert (2, 3) == layout.whole(2, 2) == layout.whole(3, 3)
    assert (4, 4) == layout.whole(4, 4)


def test_a_statement_on_the_line_of_its_brace_belongs_to_the_whole_body() -> None:
    layout = embedded("void f() { a();", "  b();", "  c(); }")

    assert (3, 3) == layout.whole(3, 3)
    assert (2, 4) == layout.whole(2, 3) == layout.whole(3, 4)


@pytest.mark.parametrize("prefix", ["", "r", "f", "rb", "F"])
def test_brackets_count_in_every_kind_of_string(prefix: str) -> None:
    layout = embedded("int x = f(", "  y);", "int z;", prefix=prefix)

    assert (2, 3) == layout.whole(2, 2) == layout.whole(3, 3)
    assert (4, 4) == layout.whole(4, 4)


def test_a_line_with_only_a_string_or_a_directive_holds_code() -> None:
    layout = embedded("puts(", '  "(x"', ");", "#pragma unroll")

    assert (3, 3) == layout.whole(3, 3)
    assert (5, 5) == layout.whole(5, 5)


def test_both_branches_of_a_condition_stay_together() -> None:
    layout = embedded("if (x) {", "  a();", "} else {", "  b();", "}")

    assert (2, 6) == layout.whole(5, 6) == layout.whole(2, 3)


def test_brackets_in_strings_and_comments_do_not_count() -> None:
    layout = embedded(
        "void run(float* x) {",
        "  // an unclosed } in a comment",
        "  puts(\"(\"); char c = '{';",
        "  /* a ( over",
        "     lines */",
        "  if (x) {",
        "    a();",
        "  }",
        "}",
    )

    assert (3, 6) == layout.whole(3, 6)
    assert (7, 9) == layout.whole(7, 8)
    assert None is layout.whole(5, 6)


@pytest.mark.parametrize("opening", ["int b[;", "}"])
def test_a_bracket_without_a_partner_is_ignored(opening: str) -> None:
    assert (4, 4) == embedded("int a;", opening, "int c;").whole(4, 4)


def test_any_text_only_has_to_close_its_brackets() -> None:
    layout = embedded("kernel scale", "  load(", "    x)", "  store x")

    assert (2, 2) == layout.whole(2, 2)
    assert (3, 4) == layout.whole(4, 4)


def test_a_format_string_is_code_too() -> None:
    layout = embedded(
        "void f() {{", "  g({size});", "  if (a) {{", "    h();", "  }}", "}}", prefix="f"
    )

    assert (4, 6) == layout.whole(4, 6) == layout.whole(4, 5)
    assert (5, 5) == layout.whole(5, 5)


def test_embedded_lines_lie_strictly_between_the_quotes() -> None:
    layout = embedded("int a;", "int b;")

    assert layout.is_embedded(2, 3)
    assert not layout.is_embedded(1, 2)
    assert not layout.is_embedded(3, 4)


def test_parse_python_turns_null_bytes_into_a_syntax_error() -> None:
    with pytest.raises(SyntaxError, match="null bytes"):
        parse_python("a = '\0'")


@pytest.mark.parametrize(("last", "words"), [(3, "line 3"), (5, "lines 3-5")])
def test_a_span_in_words(last: int, words: str) -> None:
    assert words == str(Span(3, last))


def test_a_string_whose_value_has_fewer_lines_is_widened_too() -> None:
    layout = Layout('"""\\\n\nfirst\nsecond\n"""\n\nx = 1\n')

    assert [(1, 5), (1, 5), (3, 3)] == [layout.whole(*s) for s in ((1, 1), (1, 4), (3, 3))]
