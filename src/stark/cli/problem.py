"""`stark problem`: measures a problem's reference and prints what the writer of a kernel needs to know."""

from __future__ import annotations

from stark.cli import consoles
from stark.cli.interrupt import run_interruptibly
from stark.cli.own_model import load_or_capture
from stark.cli.settings import Settings
from stark.configuration import asked_for, open_judge
from stark.core.errors import UsageError
from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.languages import language
from stark.options import RunOptions, checked_options
from stark.report.agent_documents import problem_document, runnable


def show_problem(
    spec: str, inputs: str | None, settings: Settings, guide: bool, as_json: bool
) -> int:
    """Print the problem; returns the exit code."""
    asked = checked_options(settings.options)
    if asked.language is not None:
        language(asked.language)
    problem = asked_for(load_or_capture(spec, inputs, settings.kernelbench, asked.backward), asked)
    reference = run_interruptibly(_described(problem, asked))
    chosen = asked.language or runnable(reference)[0]
    if chosen not in runnable(reference):
        raise UsageError(
            f"{reference.device.name} cannot run {chosen}; choose one of {', '.join(runnable(reference))}"
        )
    document = problem_document(problem, reference, chosen if guide else None)
    if as_json:
        consoles.print_json(document)
        return 0
    consoles.say(f"{problem.name}\n{document.summary}")
    if document.guide is not None:
        consoles.write(f"\n{document.guide}\n")
    return 0


async def _described(problem: Problem, asked: RunOptions) -> Reference:
    executor = open_judge(asked)
    try:
        return await executor.describe(problem)
    finally:
        await executor.close()
