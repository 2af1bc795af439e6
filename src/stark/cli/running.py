"""`stark optimize`, `stark resume` and `stark demo`: work on a run, show it, and write its kernel."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from rich.text import Text

from stark.api import aoptimize, aresume
from stark.cli import consoles
from stark.cli.live import open_progress
from stark.cli.options import JUDGING, flag
from stark.cli.own_model import load_or_capture
from stark.cli.places import check_file, kernel_path, refuse_fleeting
from stark.cli.settings import Settings
from stark.cli.showing import run_shown
from stark.configuration import device_kind, without_unused_models
from stark.core.errors import ModelRefused, StarkError, UsageError
from stark.core.problem import Problem
from stark.events import Prepared
from stark.explain.evaluation import accuracy_text, verdict
from stark.explain.numbers import counted
from stark.explain.run import replay_line
from stark.report.document import RunDocument, run_document
from stark.report.run import run_text
from stark.results import Result
from stark.store import Store


class SearchedDocument(RunDocument):
    """A run after a search."""

    kernel: str | None
    """The file of the kernel that passed the final check; null if none did."""


def optimize(
    problem: str | None,
    inputs: str | None,
    settings: Settings,
    replay: Path | None,
    output: Path | None,
    as_json: bool,
) -> int:
    """Begin a run and work on it; returns the exit code."""
    if replay is not None:
        _refuse_beside_replay(settings.given)
    if problem is None and replay is None:
        raise UsageError("name a problem: a Python file with Model, get_inputs and get_init_inputs")
    refuse_fleeting(settings.store)
    loaded = None if problem is None else _problem(problem, inputs, settings)
    strategies = [settings.options.get("strategy", "stark")]
    options = without_unused_models(settings.options, strategies, settings.given)
    work = partial(aoptimize, loaded, replay=replay, **options)
    return _work(work, settings.store, output, as_json)


def _problem(spec: str, inputs: str | None, settings: Settings) -> Problem:
    backward = bool(settings.options.get("backward"))
    return load_or_capture(spec, inputs, settings.kernelbench, backward)


def _refuse_beside_replay(given: Iterable[str]) -> None:
    """Raise UsageError for options that a recording determines."""
    if said := [
        flag(name) for name in given if name not in JUDGING or name in ("language", "backward")
    ]:
        them = "it" if len(said) == 1 else "them"
        raise UsageError(
            f"a replay follows its recording and takes no {', '.join(said)}; leave {them} out, or leave out --replay"
        )


def resume(
    run_id: str, settings: Settings, replay: Path | None, output: Path | None, as_json: bool
) -> int:
    """Continue a run with the options that the command line changes; returns the exit code."""
    work = partial(aresume, run_id, replay=replay, **settings.given)
    return _work(work, settings.store, output, as_json)


def demo(settings: Settings, as_json: bool) -> int:
    """Replay a recorded run: its replies are a real model's; builds, checks and timings are live."""
    executor = settings.options.get("executor", "local")
    language = "cpp" if device_kind(executor) == "cpu" else "triton"
    with as_file(files("stark").joinpath("demo", f"{language}.json.gz")) as recording:
        return optimize(None, None, settings, recording, None, as_json)


def _work(
    work: Callable[..., Coroutine[Any, Any, Result]], store: str, output: Path | None, as_json: bool
) -> int:
    """Work until a limit is reached, then show the result; returns the exit code."""
    if output is not None:
        check_file(output)
    view = open_progress(consoles.console(as_json))
    resuming = partial(how_to_resume, store)
    result = run_shown(partial(work, store=store), view, Prepared, resuming)
    kernel, path = result.kernel, None
    if kernel is not None and kernel.confirmed:
        path = kernel.save(output or kernel_path(store, result.run_id))
    if as_json:
        document = dict(run_document(result))
        consoles.print_json(
            SearchedDocument(**document, kernel=None if path is None else str(path))
        )
    else:
        _show(result, path)
    return 0 if path is not None else 1


def _show(result: Result, path: Path | None) -> None:
    console = consoles.console()
    console.print(run_text(run_document(result), console.width))
    console.print()
    if path is None or result.winner is None:
        found = "None of the fastest kernels passed the final check."
        lacking = "No correct kernel was found."
        console.print(Text(found if result.promotions else lacking, "bold red"))
        console.print(
            f"`stark show {result.run.id}` says why each attempt failed; "
            f"`stark resume {result.run.id} --attempts N` continues with a larger budget."
        )
    else:
        assert result.kernel is not None
        console.print(Text(verdict(result.kernel.evaluation), "bold"))
        console.print(Text(accuracy_text(result.kernel.evaluation.accuracy)), soft_wrap=True)
        console.print(Text(f"kernel: {path}"), soft_wrap=True)
    if result.run.is_replay:
        console.print(Text(f"In this run {replay_line(result.run)}."))


def how_to_resume(store_url: str, prepared: Prepared, stop: StarkError) -> str:
    """What is stored of a run that stopped, and the command that continues it."""
    run = prepared.run
    with Store.open(store_url, create=False) as store:
        if not store.holds(run.id):
            return "the run had not begun, so nothing is stored; run the same command again"
        nodes = store.nodes(run.id)
    correct = sum(node.works for node in nodes)
    replay = " --replay FILE" if run.is_replay else ""
    refused = isinstance(stop, ModelRefused)
    condition = ", once the model works or with another --model" if refused else ""
    stored = f"{counted(len(nodes), 'attempt')} {'is' if len(nodes) == 1 else 'are'} stored"
    return f"{stored} ({correct} correct); `stark resume {run.id}{replay}` continues the run{condition}"
