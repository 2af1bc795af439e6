"""Writes the prompts of a recorded run as they would be today.

Each prompt sees the attempts with lower numbers, as in a run that makes one attempt at a time, and the recorded plans.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from stark.agents.team import Assignment
from stark.core.call import Fit, Message, Reply
from stark.core.candidate import Candidate
from stark.languages import language
from stark.languages.technique import Technique
from stark.recorded import RecordedReplies, Recording
from stark.search.tree import Tree
from stark.strategies import team_of


class Prompt(NamedTuple):
    """A prompt of a recorded run, written today."""

    attempt: int
    role: str
    tokens: int
    """An estimate, with the instructions."""


async def rebuilt(recording: Recording) -> list[Prompt]:
    """The prompts of each attempt, without those of replies that were sent back."""
    run, config = recording.run, recording.run.config
    if recording.left_out:  # the line in place of the problem's text is no Python
        problem = run.problem.model_copy(update={"source": f"# {run.problem.source}"})
        run = run.model_copy(update={"problem": problem})
    replies, prompts = RecordedReplies(recording), list[Prompt]()
    taught = language(config.language).guidance(recording.reference, recording.reference.backward)
    technique = next(iter(taught.techniques), None)
    for attempt, selection in recording.selections.items():

        async def ask(
            role: str,
            messages: tuple[Message, ...],
            fit: Fit,
            *,
            more_output: bool,
            attempt: int = attempt,
        ) -> Reply:
            if not any(message.speaker == "assistant" for message in messages):
                prompts.append(Prompt(attempt, role, fit.tokens))
            reply = await replies.reply(attempt, 0, role, messages, more_output)
            return _naming(technique, reply) if role == "plan" and technique else reply

        before = (node for node in recording.nodes if node.id < attempt)
        work = Assignment(
            problem=run.problem,
            language=language(config.language),
            reference=recording.reference,
            tree=Tree.replay(recording.reference.latency_ms, before),
            selection=selection,
            attempt=attempt,
            rng=random.Random(f"{config.seed}/{attempt}/window"),
            lessons=config.lessons or (),
            window_tokens=config.window_tokens,
        )
        await team_of(config.strategy).write(work, ask, _builds)
    return prompts


def _naming(technique: Technique, reply: Reply) -> Reply:
    """A recorded plan as if it named this technique, if plans could name none when it was made."""
    if "TECHNIQUES:" in reply.text:
        return reply
    named = f"TECHNIQUES: {technique.key}\nSTRATEGY:"
    return reply.model_copy(update={"text": reply.text.replace("STRATEGY:", named, 1)})


async def _builds(candidate: Candidate) -> str:
    """No error: nothing is sent back."""
    return ""
