"""What `import stark` offers, what it costs, and how it is explained."""

from __future__ import annotations

import ast
import inspect
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import stark
from stark import events
from stark.options import RunOptions

SOURCE = Path(stark.__file__).parent

NAMES = """
Applied Budget Calls Executor Kernel Ledger MachineError ModelError Price Problem ProblemError Result StarkError UsageError
abench aevaluate aoptimize aoptimize_regions apply aresume bench capture capture_regions evaluate hotspots load_run
open_executor optimize optimize_regions recording resume runs verify
""".split()

FUNCTIONS = [name for name in NAMES if inspect.isfunction(getattr(stark, name))]

AWAITED = ("abench", "aevaluate", "aoptimize_regions", "aresume")
"""Their examples are those of the functions that wait for them."""

IMPORT_MS = 50.0
BUSY = 10
"""How much slower everything may be on a busy machine."""

IMPORT = """
import sys, time
started = time.perf_counter()
import stark
print(1000 * (time.perf_counter() - started))
print(*{"torch", "pydantic", "pydantic_ai", "sqlalchemy", "asyncio"} & set(sys.modules))
"""


def test_the_public_names() -> None:
    assert NAMES == stark.__all__
    assert set(NAMES) <= set(dir(stark))
    assert 19 == len(FUNCTIONS)
    with pytest.raises(AttributeError, match="'stark' has no attribute 'nothing'"):
        stark.nothing  # type: ignore[attr-defined] # noqa: B018


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_explained(name: str) -> None:
    explained = inspect.getdoc(getattr(stark, name)) or ""

    assert 30 < len(explained)
    if name in FUNCTIONS:
        assert "Raises" in explained
        assert name in AWAITED or f"stark.{name}(" in explained, "there is an example"


@pytest.mark.parametrize("name", ["optimize", "aoptimize"])
def test_the_help_lists_arguments_and_options(name: str) -> None:
    explained = inspect.getdoc(getattr(stark, name)) or ""
    parameters = inspect.signature(getattr(stark, name)).parameters

    own = {"problem", "store", "within", "replay", "judge", "on_event", "progress", "options"}
    assert own == set(parameters)
    for option in (*RunOptions.model_fields, *parameters):
        assert re.search(rf"^    {option}: ", explained, re.MULTILINE), option
    assert "build_s: float = 180.0. Time limit of a candidate's build in seconds." in explained
    assert max(map(len, explained.splitlines())) <= 120


def test_the_reference_has_every_name_option_and_event() -> None:
    site = runpy.run_path(str(SOURCE.parents[1] / "scripts" / "site.py"))
    page = site["python_page"]() + site["options_page"]()
    handled = [kind.__name__ for kind in events.Event.__subclasses__()]

    for name in (*NAMES, *RunOptions.model_fields, *handled):
        assert re.search(rf"\b{name}\b", page), name


@pytest.mark.slow
def test_the_function_bench_is_not_replaced_by_the_package_of_that_name() -> None:
    program = "import stark.benches.running, stark; print(stark.bench.__module__)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert "stark.api" == ended.stdout.strip(), ended.stderr


def test_the_import_is_instant() -> None:
    runs = [
        subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True)
        for _ in range(5)
    ]
    took_ms, imported = zip(*(run.stdout.split("\n")[:2] for run in runs), strict=True)

    assert {""} == set(imported)
    assert min(map(float, took_ms)) < BUSY * IMPORT_MS


def test_types_are_published() -> None:
    assert (SOURCE / "py.typed").is_file()


def flags_in_errors(path: Path) -> list[str]:
    """The texts with a flag of the command line in what a module raises, with their lines."""
    tree = ast.parse(path.read_text())
    raised = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.exc]
    return [
        f"{path.relative_to(SOURCE)}:{text.lineno}: {text.value}"
        for error in raised
        for text in ast.walk(error)
        if isinstance(text, ast.Constant) and re.search(r"--[a-z]", str(text.value))
    ]


def test_errors_outside_the_command_line_name_no_flags() -> None:
    library = [path for path in SOURCE.rglob("*.py") if "cli" not in path.parts]

    assert 100 < len(library)
    assert [] == [found for path in library for found in flags_in_errors(path)]
    assert flags_in_errors(SOURCE / "cli" / "running.py"), (
        "the search finds those of the command line"
    )
