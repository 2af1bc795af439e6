from __future__ import annotations

import os

import pytest

from stark.cli import consoles
from stark.report.runs_document import RunsDocument


def test_nobody_who_reads_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        console = consoles.console()

        console.print("one")
        console.print("two")
        consoles.console().print("three")


def test_a_document_that_nobody_reads_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        monkeypatch.setattr("sys.stdout", stream)

        consoles.print_json(RunsDocument(runs=(), benches=()))
