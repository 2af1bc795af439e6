"""`stark runs`, `stark show` and `stark record`: print or export stored runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from stark.cli import consoles
from stark.cli.places import check_file
from stark.cli.settings import Settings
from stark.core.errors import UsageError
from stark.explain.numbers import counted
from stark.recorded import read_recording, record, write_recording
from stark.report.attempt_document import node_document
from stark.report.document import run_document
from stark.report.markdown import run_markdown
from stark.report.node import node_of, node_text, python
from stark.report.run import run_text, runs_table
from stark.report.runs_document import runs_document
from stark.report.view import RunView
from stark.store import Store


def list_runs(settings: Settings, as_json: bool) -> None:
    """Print one line per run."""
    with Store.open(settings.store, create=False) as store:
        document = runs_document(store)
    if as_json:
        consoles.print_json(document)
    elif document.runs:
        consoles.console().print(runs_table(document.runs))
    else:
        consoles.console().print("There are no runs yet; `stark optimize PROBLEM` makes one.")


def show_run(
    asked: str, attempt: int | None, settings: Settings, source: bool, prompt: bool, as_json: bool
) -> None:
    """Print a run, one of its attempts, an attempt's source, or its prompts and replies."""
    view = _view(asked, settings)
    console = consoles.console()
    if source:
        text = _source(view, attempt)
        if console.is_terminal:
            console.print(python(text))
        else:
            consoles.write(text)
    elif attempt is not None:
        node = node_of(view, attempt)
        if as_json:
            consoles.print_json(node_document(view, node))
        elif prompt:
            consoles.write("".join(_conversation(view, attempt)))
        else:
            console.print(node_text(node_document(view, node)))
    elif prompt:
        raise UsageError(
            "name the attempt whose prompts are to be shown, such as `stark show last 1 --prompt`"
        )
    elif as_json:
        consoles.print_json(run_document(view))
    else:
        console.print(run_text(run_document(view), console.width))


def write_run(asked: str, settings: Settings, html: Path | None, markdown: Path | None) -> None:
    """Write a run as one HTML file, as Markdown, or both."""
    view = _view(asked, settings)
    if html is not None:
        from stark.page.file import html_file

        _write(html, "--html", html_file(view))
    if markdown is not None:
        _write(markdown, "--markdown", run_markdown(run_document(view)))


def _write(path: Path, option: str, text: str) -> None:
    check_file(path, option)
    path.write_text(text, encoding="utf-8", errors="replace")
    consoles.say(f"{path}: {path.stat().st_size / 1000:,.0f} kB")


def _conversation(view: RunView, attempt: int) -> Iterator[str]:
    """Every prompt of an attempt with the reply to it."""
    for call in view.calls:
        if call.attempt == attempt:
            for message in call.messages:
                yield f"===== {call.role}, question {call.turn + 1}: {message.speaker} =====\n{message.text}\n"
            yield f"===== {call.role}, reply of {call.reply.model} =====\n{call.reply.text}\n"


def record_run(asked: str, path: Path, without_problem: bool, settings: Settings) -> None:
    """Write a run's recording."""
    with Store.open(settings.store, create=False) as store:
        recording = record(store, store.run(asked))
    if without_problem:
        recording = recording.without_problem()
    try:
        write_recording(recording, path)
    except OSError as error:
        raise UsageError(f"the recording cannot be written to {path}: {error.strerror}") from error
    said = f"{path}: {counted(len(recording.nodes), 'attempt')} of run {recording.run.id}"
    consoles.say(said)


def _view(asked: str, settings: Settings) -> RunView:
    """A run from the store or from a recording's file."""
    path = Path(asked)
    if path.name.endswith((".json", ".json.gz")):
        return RunView.of_recording(read_recording(path))
    with Store.open(settings.store, create=False) as store:
        return RunView.of_store(store, asked)


def _source(view: RunView, attempt: int | None) -> str:
    node = view.best if attempt is None else node_of(view, attempt)
    if node is None:
        lacking = "that passed the final check" if view.promotions else "that is correct"
        raise UsageError(f"run {view.run.id} has no kernel {lacking}; name an attempt")
    if node.candidate is None:
        raise UsageError(f"attempt {node.id} left no source: its reply was unusable")
    return node.candidate.source
