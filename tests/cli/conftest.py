from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from cli_samples import (
    BETTER,
    BROKEN,
    COMPARISON,
    FOUND,
    GOOD,
    MODEL,
    Ended,
    Stark,
    candidate_source,
    verdict,
)

from stark.cli.app import main
from stark.languages import language
from stark.regions.results import Answer, Captured
from support.examples import guide_example
from support.executor import FakeExecutor
from support.nodes import CPU


@pytest.fixture(scope="package", autouse=True)
def commands_made_once() -> Iterator[None]:
    """Typer makes all of them anew for each that is run, which takes longer than many a command."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", functools.cache(typer.main.get_command))
        yield


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a problem, a model and its replies, and nothing set in the environment."""
    for name in list(os.environ):
        if name.startswith("STARK_") and name != "STARK_CACHE":  # set for the whole session
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "problem.py").write_text(guide_example(language("cpp")).problem.source)
    (tmp_path / "model.sh").write_text(MODEL)
    for number, mark in enumerate((BROKEN, GOOD, BETTER, GOOD, GOOD, GOOD), start=1):
        reply = f"```python\n{candidate_source(mark)}```\n"
        (tmp_path / f"reply-{number}.md").write_text(reply)
    return tmp_path


@pytest.fixture
def stark(capfd: pytest.CaptureFixture[str]) -> Stark:
    """Runs a command in this process."""

    def run(*arguments: str) -> Ended:
        capfd.readouterr()
        code = main(arguments)
        words = 2 if arguments[:1] == ("bench",) else 1
        return Ended(code, *capfd.readouterr(), " ".join(arguments[:words]))

    return run


class Finished:
    """A process that has ended."""

    def __init__(self, returncode: int) -> None:
        self.returncode = returncode

    async def wait(self) -> int:
        return self.returncode


@pytest.fixture
def model_here(monkeypatch: pytest.MonkeyPatch, workplace: Path) -> Iterator[None]:
    """The user's model runs in this process: in one of its own, importing torch takes seconds."""
    from stark.regions import __main__ as regions

    start, known = asyncio.create_subprocess_exec, set(sys.modules)

    async def run(*line: str, **options: Any) -> Any:
        if line[1:3] != ("-m", "stark.regions"):
            return await start(*line, **options)
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(options["stdout"]):
            patch.setattr(sys, "argv", line[2:])
            return Finished(regions.main())

    monkeypatch.setattr(asyncio, "create_subprocess_exec", run)
    monkeypatch.syspath_prepend(workplace)
    yield
    for name in set(sys.modules) - known:
        if str(workplace) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> FakeExecutor:
    """The executor that every notation leads to."""
    fake = FakeExecutor(verdict, device=CPU)
    for module in ("sessions", "benches.entry", "configuration"):
        monkeypatch.setattr(f"stark.{module}.open_executor", lambda *_, **__: fake)
    return fake


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, workplace: Path) -> list[tuple[str, list[str]]]:
    """What the process with the model is asked; it answers that two regions are captured and one is refused."""
    found: list[tuple[str, list[str]]] = []
    source = (workplace / "problem.py").read_text()
    (workplace / "norm.py").write_text(f"{source}\n# another problem\n")

    def answer(work: str, module: str, inputs: str, more: list[str]) -> Answer:
        assert ("users:Model", "users:example") == (module, inputs)
        found.append((work, more))
        if work == "compare":
            return Answer(comparison=COMPARISON)
        captured = (
            Captured(region=FOUND.regions[0], file="problem.py"),
            Captured(region=FOUND.regions[1], refused="hooked has a hook; remove it"),
            Captured(region=FOUND.regions[2], file="norm.py"),
        )
        return Answer(hotspots=FOUND, captured=captured)

    monkeypatch.setattr("stark.cli.improving.asked_model", answer)
    return found
