from __future__ import annotations

import pytest

from stark.agents.spans import Layout, lines_in_words, multi_line_literals, parse_python

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
    assert Layout('"""half a character:\n\\ud800"""\nx = 1\n').fault(3, 3) is None
    assert Layout("@(\n    staticmethod\n)\ndef f():\n    pass\n").fault(1, 5) is None


def line(source: str, text: str, nth: int = 1) -> int:
    """The number of the nth line that contains a text."""
    return [n for n, row in enumerate(source.split("\n"), start=1) if text in row][nth - 1]


def fault_between(source: str, begins: str, ends: str, nth: int = 1) -> str | None:
    first = line(source, begins)
    last = next(
        n
        for n, row in enumerate(source.split("\n"), start=1)
        if n >= first and ends in row and (nth := nth - 1) == 0
    )
    return Layout(source).fault(first, last)


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
def test_whole_python_statements_have_no_fault(begins: str, ends: str) -> None:
    assert None is fault_between(PYTHON, begins, ends)


@pytest.mark.parametrize(
    ("begins", "ends", "cut", "nearest"),
    [
        ("@triton.jit", "tl.store", (4, 22), "lines 10-22, or lines 4-22 around it"),
        ("x + i,", "mask=mask,", (16, 19), "lines 16-19"),
        ("i = tl.arange", "x + i,", (16, 19), "lines 14-19"),
        ("elif n > 0", "a = 3", (26, 31), "line 29, or lines 26-31 around it"),
        ("else:", "a = 4", (26, 31), "line 31, or lines 26-31 around it"),
        ("a = 4", "for k in", (26, 31), "line 32, or lines 26-32 around it"),
        ("except ValueError", "stop()", (33, 38), "line 36, or lines 33-38 around it"),
        ("case 1", "one()", (39, 43), "line 41, or lines 39-43 around it"),
    ],
)
def test_cut_python_statement_is_named_with_the_nearest_span(
    begins: str, ends: str, cut: tuple[int, int], nearest: str
) -> None:
    head = PYTHON.split("\n")[cut[0] - 1].strip()

    assert (
        f"splits the statement on lines {cut[0]}-{cut[1]}, which begins `{head}`. "
        f"Name whole statements; the nearest span is {nearest}."
    ) == fault_between(PYTHON, begins, ends)


def test_span_of_blank_lines_and_comments_holds_no_statement() -> None:
    first = line(PYTHON, "# write back")

    assert (
        "holds no statement, only blank lines and comments. Name lines that hold code."
    ) == Layout(PYTHON).fault(first - 1, first)


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
        (12, 28, "__global__"),
        (13, 14, "__shared__"),
        (15, 18, "#pragma unroll"),
        (16, 18, "for (int j"),
        (17, 17, "y[i] = x[i]"),
        (19, 23, "#ifdef"),
        (22, 22, "slow()"),
        (24, 27, "if (i < n)"),
        (25, 25, "y[i] = 2"),
        (31, 32, "const char* brace"),
        (33, 34, "scale<float, 16><<<grid"),
        (35, 37, "AT_DISPATCH"),
        (36, 36, "scale<scalar_t, 8><<<grid"),
        (38, 44, "switch"),
        (39, 41, "case 1"),
        (40, 41, "one()"),
    ],
)
def test_whole_embedded_statements_have_no_fault(first: int, last: int, begins: str) -> None:
    assert CUDA.split("\n")[first - 1].strip().startswith(begins)

    assert None is Layout(CUDA).fault(first, last)


@pytest.mark.parametrize(
    ("first", "last", "cut", "nearest"),
    [
        (8, 8, (8, 9), "lines 8-9"),
        (11, 11, (11, 28), "lines 11-28"),
        (15, 15, (15, 18), "lines 15-18"),  # a pragma belongs with its loop
        (14, 15, (15, 18), "line 14, or lines 14-18 around it"),
        (16, 17, (15, 18), "line 17, or lines 15-18 around it"),
        (17, 18, (15, 18), "line 17, or lines 15-18 around it"),
        (19, 20, (19, 23), "line 20, or lines 19-23 around it"),
        (21, 22, (19, 23), "line 22, or lines 19-23 around it"),
        (26, 27, (24, 27), "line 27, or lines 24-27 around it"),
        (32, 33, (33, 34), "lines 32-34"),
        (34, 34, (33, 34), "lines 33-34"),
        (36, 37, (35, 37), "lines 35-37"),
        (40, 42, (42, 43), "lines 40-41, or lines 39-43 around it"),
        (4, 6, (4, 47), "lines 4-47"),  # the opening quotes belong to Python
        (46, 47, (30, 46), "lines 30-46, or lines 4-47 around it"),
    ],
)
def test_cut_embedded_statement_is_named_with_the_nearest_span(
    first: int, last: int, cut: tuple[int, int], nearest: str
) -> None:
    head = CUDA.split("\n")[cut[0] - 1].strip()

    assert (
        f"splits the statement on lines {cut[0]}-{cut[1]}, which begins `{head}`. "
        f"Name whole statements; the nearest span is {nearest}."
    ) == Layout(CUDA).fault(first, last)


def embedded(*rows: str, prefix: str = "r") -> Layout:
    """A file with these rows in a string: row n, from 1, is line n + 1."""
    return Layout(f'source = {prefix}"""\n' + "\n".join(rows) + '\n"""\n')


def test_pragma_may_stand_between_a_loop_without_braces_and_its_body() -> None:
    layout = embedded(
        "void f() {",
        "  for (int i = 0; i < 4; ++i)",
        "    #pragma unroll",
        "    for (int j = 0; j < 4; ++j)",
        "      a(i, j);",
        "}",
    )

    assert None is layout.fault(3, 6)
    assert None is layout.fault(4, 6)
    assert None is layout.fault(5, 6)
    assert "splits the statement on lines 4-6" in (layout.fault(3, 4) or "")


def test_pragmas_with_continuations_stack_on_the_statement_that_they_govern() -> None:
    layout = embedded(
        "void f() {",
        "#pragma omp parallel for \\",
        "    schedule(static)",
        "#pragma GCC ivdep",
        "  for (;;) {}",
        "#pragma omp barrier",
        "  b();",
        "}",
    )

    assert None is layout.fault(3, 6)
    assert None is layout.fault(6, 7)
    assert None is layout.fault(7, 8)
    assert "splits the statement on lines 3-6" in (layout.fault(3, 5) or "")
    assert "splits the statement on lines 3-6" in (layout.fault(5, 5) or "")


def test_statements_that_share_a_line_count_as_one() -> None:
    layout = embedded("int a = 0; int b = f(", "    a);", "int c;")

    assert None is layout.fault(2, 3)
    assert None is layout.fault(4, 4)
    assert "splits the statement on lines 2-3" in (layout.fault(3, 4) or "")


def test_statement_on_the_line_of_its_brace_is_no_span_of_its_own() -> None:
    layout = embedded("void f() { a();", "  b();", "  c(); }")

    assert None is layout.fault(3, 3)
    assert "splits" in (layout.fault(2, 3) or "")
    assert "splits" in (layout.fault(3, 4) or "")


def test_loop_head_over_several_lines_is_no_span() -> None:
    layout = embedded(
        "void f() {", "  for (", "      int i = 0;", "      i < n; ++i) {", "  }", "}"
    )

    assert "splits the statement on lines 3-6" in (layout.fault(4, 4) or "")


@pytest.mark.parametrize("prefix", ["", "r", "f", "rb", "F"])
def test_macro_continuation_is_read_in_every_kind_of_string(prefix: str) -> None:
    slash = "\\" if "r" in prefix else "\\\\"
    layout = embedded(f"#define A(x) {slash}", "  f(x)", "int y;", prefix=prefix)

    assert None is layout.fault(2, 3)
    assert None is layout.fault(4, 4)


UNREADABLE = (
    "void run(float* x) {",
    "  // an unclosed } in a comment",
    "  puts(\"(\"); char c = '{';",
    "  if (x) {",
    "    a(1,",
    "      2);",
    "  }",
    "}",
    "template <<< ",
)


@pytest.mark.parametrize("span", [(2, 9), (4, 4), (5, 8), (6, 7), (2, 10)])
def test_unreadable_text_is_held_to_balanced_brackets(span: tuple[int, int]) -> None:
    assert None is embedded(*UNREADABLE).fault(*span)


def test_unbalanced_span_of_unreadable_text_gets_the_nearest_balanced_one() -> None:
    assert (
        "opens or closes a bracket whose partner lies outside. Name lines in which every bracket "
        "is closed; the nearest span is lines 5-8."
    ) == embedded(*UNREADABLE).fault(5, 6)


def test_bracket_without_any_partner_is_named() -> None:
    assert (
        "holds a bracket on line 3 that has no partner in its string. "
        "Name lines in which every bracket is closed."
    ) == embedded("int a;", "int b[;", "int c;").fault(2, 3)


def test_format_string_is_a_literal_too() -> None:
    layout = embedded(
        "void f() {{", "  g({size});", "  if (a) {{", "    h();", "  }}", "}}", prefix="f"
    )

    assert None is layout.fault(4, 6)
    assert None is layout.fault(5, 5)
    assert layout.fault(4, 5) is not None


def test_literal_around_needs_lines_strictly_between_the_quotes() -> None:
    layout = embedded("int a;", "int b;")

    assert layout.literals[0] == layout.literal_around(2, 3)
    assert None is layout.literal_around(1, 2)
    assert None is layout.literal_around(3, 4)


def test_literals_keep_a_row_per_line_of_the_file() -> None:
    source = "a = ('''x\\ny\nz''', \"\"\"one line\"\"\")\nb = '''1\\t2\n3'''\n"

    assert [(1, 2, "x\\ny\nz"), (3, 4, "1\t2\n3")] == list(multi_line_literals(source))


def test_parse_python_turns_null_bytes_into_a_syntax_error() -> None:
    with pytest.raises(SyntaxError, match="null bytes"):
        parse_python("a = '\0'")


@pytest.mark.filterwarnings("error")
def test_invalid_escape_in_a_string_prints_no_warning() -> None:
    assert 1 == len(Layout('a = """\n\\d\n"""\n').literals)


@pytest.mark.parametrize(("first", "last", "words"), [(3, 3, "line 3"), (3, 5, "lines 3-5")])
def test_lines_in_words(first: int, last: int, words: str) -> None:
    assert words == lines_in_words(first, last)


def test_a_span_in_a_string_whose_lines_are_not_its_rows_gets_advice() -> None:
    layout = Layout('"""\\\n\nfirst\nsecond\n"""\n\nx = 1\n')

    assert [
        'splits the statement on lines 1-5, which begins `"""\\`. Name whole statements; '
        "the nearest span is lines 1-5."
    ] * 4 + [None] == [layout.fault(1, last) for last in range(1, 6)]


def test_a_span_that_no_statements_surround_gets_advice_and_no_crash() -> None:
    layout = Layout("x = 1; \\\ny = 2\n")
    advice = "lies in no span of whole statements. Name other lines, or ask for a rewrite."

    assert [advice, advice, None] == [layout.fault(*span) for span in ((1, 1), (1, 2), (2, 2))]
