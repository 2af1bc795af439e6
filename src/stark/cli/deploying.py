"""`stark export` and `stark verify`: write a kernel as a package, and judge a package again."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from stark.api import load_run
from stark.cli import consoles
from stark.cli.interrupt import run_interruptibly
from stark.cli.places import check_file
from stark.cli.settings import Settings
from stark.core.errors import UsageError
from stark.deploy.verify import averify, or_on_one_core
from stark.explain.run import mode_line
from stark.options import checked_options
from stark.report.verification import verification_junit, verification_markdown

EXIT_CODES = {"confirmed": 0, "refused": 1, "no verdict": 2}


def export(run: str, folder: Path, attempt: int | None, settings: Settings) -> None:
    """Write a run's kernel as a package."""
    result = load_run(run, settings.store)
    kernel = result.kernel if attempt is None else result.attempt_kernel(attempt)
    if kernel is None:
        raise UsageError(f"run {result.run_id} has no correct kernel; name an attempt or search on")
    kernel.export(folder)
    state = "passed" if kernel.confirmed else "did not go through"
    consoles.say(
        f"{folder}: attempt {kernel.attempt} of run {result.run_id}, which {state} the final check"
    )
    if mode := mode_line(result.run.problem):
        consoles.say(f"mode: {mode}")
    claims = kernel.contents.certificate.claims
    if noisy := [name for name, claim in claims.items() if claim.too_noisy]:
        consoles.say(
            f"The speedup vs {noisy[0]} was too noisy, so `stark verify` may give no verdict; search again while no other "
            f"programs run{or_on_one_core(kernel.evaluation.device)}."
        )


def verify(
    package: str, settings: Settings, ci: Path | None, markdown: Path | None, as_json: bool
) -> int:
    """Judge a package again; returns the exit code."""
    for path, name in ((ci, "--ci"), (markdown, "--markdown")):
        if path is not None:
            check_file(path, name)
    executor = checked_options(settings.options).executor
    with consoles.console(as_json).status(Text(f"judging {package}")):
        found = run_interruptibly(averify(package, executor=executor))
    if as_json:
        consoles.print_json(found)
    else:
        consoles.say(str(found))
    _write(ci, verification_junit(found))
    _write(markdown, verification_markdown(found))
    return EXIT_CODES[found.outcome]


def _write(path: Path | None, text: str) -> None:
    if path is not None:
        path.write_text(text, encoding="utf-8")
