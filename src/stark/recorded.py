"""A run as one JSON file, with all prompts, replies, selections and evaluations, to be read or replayed elsewhere."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections import defaultdict
from contextlib import nullcontext
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from stark.core.base import Frozen
from stark.core.call import Call, Message, Reply
from stark.core.elsewhere import Elsewhere
from stark.core.errors import PromptRefused, RecordingError, UsageError
from stark.core.evaluation import Evaluation, Unusable
from stark.core.node import Node, Selection
from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.core.run import Ended, Run, RunConfig
from stark.core.tuning import Tuning
from stark.core.usage import Cost
from stark.explain.numbers import counted
from stark.store import Store

LEFT_OUT = "is left out of this recording"
"""Ends the line that stands for a problem's text in a recording without it."""


class Recording(Frozen):
    """Everything that the store knows of a run."""

    format: Literal[1] = 1
    run: Run
    reference: Reference
    selections: dict[int, Selection]
    """By attempt number, in the order in which the attempts began."""

    nodes: tuple[Node, ...]
    """In the order in which they finished."""

    calls: tuple[Call, ...]
    promotions: dict[int, Evaluation] = Field(default={})
    """The evaluations of the final check, by attempt."""

    elsewhere: dict[str, Elsewhere] = Field(default={})
    """What was measured on other kinds of machines, by kind."""

    left_out: str | None = None
    """The problem's digest if the recording leaves out the problem's text, which may not be publishable; else None."""

    @property
    def unusable(self) -> dict[int, str]:
        """The attempts that produced no candidate, each with the reason."""
        evaluations = {node.id: node.evaluation for node in self.nodes}
        unfinished = set(self.selections) - set(evaluations)
        return dict.fromkeys(unfinished, "the recorded run did not finish this attempt") | {
            id: found.reason for id, found in evaluations.items() if isinstance(found, Unusable)
        }

    def without_problem(self) -> Recording:
        """A copy with one line in place of the problem's text, in the run and in every prompt.

        Raises RecordingError if a reply or a candidate contains the text too.
        """
        problem = self.run.problem
        line = f"[the text of {problem.name} ({problem.digest}) {LEFT_OUT}]"
        without = self._with_text(problem.source, line, left_out=problem.digest)
        once = json.dumps(problem.source.strip(), ensure_ascii=False)[1:-1]
        twice = json.dumps(once, ensure_ascii=False)[1:-1]  # as in JSON that a reply quotes
        written = without.model_dump_json()
        if once in written or twice in written:
            raise RecordingError(
                "a reply or a candidate repeats the problem's text, so the text cannot be left out; record "
                "the run with the problem's text"
            )
        return without

    def with_problem(self, problem: Problem) -> Recording:
        """A copy with the problem's text put back. Raises RecordingError if another problem was recorded."""
        if self.left_out != problem.digest:
            raise RecordingError(
                f"the recording is of {self.run.problem.name}, whose text differs from the problem {problem.name}; "
                "give the problem that was recorded"
            )
        return self._with_text(self.run.problem.source, problem.source, left_out=None)

    def _with_text(self, old: str, new: str, left_out: str | None) -> Recording:
        def replaced(message: Message) -> Message:
            text = message.text.replace(old.strip(), new.strip())
            return message.model_copy(update={"text": text})

        problem = Problem(name=self.run.problem.name, source=new)
        run = self.run.model_copy(update={"problem": problem})
        calls = tuple(
            call.model_copy(update={"messages": tuple(map(replaced, call.messages))})
            for call in self.calls
        )
        return self.model_copy(update={"run": run, "calls": calls, "left_out": left_out})


class RecordedReplies:
    """Answers questions with the replies of a recorded run; no model is asked.

    A role is given its last recorded reply in the attempt, which decided. Its earlier replies were sent back when the
    run was recorded. They are given only if the later ones are sent back now, so that a version of STARK that would
    accept them replays the same run.
    """

    def __init__(self, recording: Recording) -> None:
        self._calls: defaultdict[tuple[int, str], list[Call]] = defaultdict(list)
        for call in recording.calls:
            self._calls[call.attempt, call.role].append(call)
        self._unusable = recording.unusable
        self._tunings = {node.id: node.tuning for node in recording.nodes}
        self.turn = nullcontext()

    def tuning(self, attempt: int) -> Tuning | None:
        """How the attempt's variants were raced when the run was recorded."""
        return self._tunings.get(attempt)

    def model(self, role: str) -> str:
        """A placeholder, since each recorded reply names its model."""
        return "recorded"

    def at_most(self, role: str, messages: tuple[Message, ...], more_output: bool) -> Cost:
        """No cost, since no model is asked."""
        return Cost()

    async def reply(
        self, attempt: int, turn: int, role: str, messages: tuple[Message, ...], more_output: bool
    ) -> Reply:
        """The recorded reply, with its token counts and a cost of $0.

        If there is no such reply, raises PromptRefused if the attempt produced no candidate, else RecordingError.
        """
        calls = self._calls.get((attempt, role), [])
        if not calls and attempt in self._unusable:
            raise PromptRefused(self._unusable[attempt])
        if not calls:
            raise RecordingError(
                f"the recording has no reply of the {role} role for attempt {attempt}; "
                "it was made by another version of STARK, so record the run again"
            )
        sent_back = sum(message.speaker == "assistant" for message in messages)
        call = calls[max(len(calls) - 1 - sent_back, 0)]
        usage = call.reply.usage.model_copy(update={"dollars": 0.0, "seconds": 0.0})
        return call.reply.model_copy(update={"usage": usage})


def record(store: Store, run: Run) -> Recording:
    """The recording of a stored run.

    An unfinished attempt is recorded with the replies that it has; in a replay, that attempt is unusable.
    Raises UsageError for a run without a finished attempt.
    """
    reference, nodes = store.reference(run.id), store.nodes(run.id)
    if reference is None or not nodes:
        raise UsageError(f"run {run.id} has no finished attempt to record")
    last = max(node.id for node in nodes)
    begun = store.selections(run.id)
    return Recording(
        run=run.model_copy(update={"config": _without_paths(run.config)}),
        reference=reference,
        selections={attempt: chosen for attempt, chosen in begun.items() if attempt <= last},
        nodes=tuple(nodes),
        calls=tuple(call for call in store.calls(run.id) if call.attempt <= last),
        promotions=store.promotions(run.id),
        elsewhere=store.elsewhere(run.id),
    )


def keep(recording: Recording, store: Store) -> None:
    """Store a recorded run under its own id, so that it can be shown beside others. Raises StoreError if the id is taken.

    A recording has no times. The time of an attempt is what the calls of the attempts finished until then took together.
    The run counts as ended, since nothing more will come.
    """
    run, elapsed_s = recording.run, 0.0
    store.create_run(run)
    elsewhere = {kind: there.reference for kind, there in recording.elsewhere.items()}
    store.set_reference(run.id, recording.reference, elsewhere)
    for attempt, selection in recording.selections.items():
        store.begin_attempt(run.id, attempt, selection)
    for call in recording.calls:
        asked = store.begin_call(run.id, call.attempt, call.role, call.reply.model, Cost())
        store.add_call(run.id, call, asked, elapsed_s)
    for node in recording.nodes:
        elapsed_s += sum(
            call.reply.usage.seconds for call in recording.calls if call.attempt == node.id
        )
        store.add_node(run.id, node, elapsed_s)
    for attempt, found in recording.promotions.items():
        store.add_promotion(run.id, attempt, found)
    for kind, there in recording.elsewhere.items():
        for attempt, found in there.checks.items():
            store.add_elsewhere(run.id, attempt, kind, found)
    made, most = sum(node.counts for node in recording.nodes), run.config.budget.attempts
    if made >= most:
        store.end_run(run.id, Ended(kind="attempts", detail=f"{counted(made, 'attempt')} made"))
    else:
        stopped = f"recorded after {made} of {most} attempts"
        store.end_run(run.id, Ended(kind="recorded", detail=stopped))


def _without_paths(config: RunConfig) -> RunConfig:
    """The configuration without commands, addresses and folders, which may hold secrets of this machine."""
    executor = re.sub(r"^(command|folder):.*", r"\1", config.executor, flags=re.DOTALL)
    behind_model = re.compile(r"(^exec\b[^:]*):.*|@https?://.*", re.DOTALL)
    models = {
        role: entry.model_copy(update={"model": behind_model.sub(r"\1", entry.model)})
        for role, entry in config.models.items()
    }
    return config.model_copy(update={"models": models, "executor": executor})


def write_recording(recording: Recording, path: Path) -> None:
    """Write the recording as indented JSON, which gives readable diffs; compressed if the name ends in `.gz`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = (recording.model_dump_json(indent=1) + "\n").encode()
    # Without a timestamp, the same run gives the same bytes.
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)


def read_recording(path: Path) -> Recording:
    """Read a recording. Raises RecordingError if the file cannot be read or is not a recording."""
    try:
        found = path.read_bytes()
        return Recording.model_validate_json(
            gzip.decompress(found) if path.suffix == ".gz" else found
        )
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise RecordingError(f"the recording {path} is damaged: {error}") from error
    except OSError as error:
        raise RecordingError(f"the recording {path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        is_json = error.errors(include_input=False)[0]["type"] != "json_invalid"
        why = " of this version of STARK" if is_json else ", since it is not JSON"
        raise RecordingError(
            f"{path} is no recording{why}; make one with `stark record RUN FILE`"
        ) from error
