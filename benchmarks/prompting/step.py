"""Says what a recorded attempt asks next, given the replies so far: a prompt, a candidate to build, or its end.

Reads JSON from stdin: `recording`, `attempt`, `replies` (texts) and `errors` (those of the build, once it is known).
Writes JSON: `sizes` (the bytes of each prompt and of its reply) and one of `prompt` (with its `role`), `build` (a source
that may go back to its writer if it does not build), `source` (the candidate), or `fault` (why there is none).

This file runs with the sources of other commits too (`paired.py`), so it uses only what they share.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import random
import sys
from pathlib import Path
from typing import Any

from stark.agents.team import Assignment
from stark.core.call import Fit, Message, Reply
from stark.core.candidate import Candidate
from stark.languages import language
from stark.models.command import as_text
from stark.recorded import read_recording
from stark.search.tree import Tree
from stark.strategies import team_of


class Paused(Exception):
    """The attempt needs something that is not known yet."""

    def __init__(self, **needs: str) -> None:
        self.needs = needs


async def step(recording: str, attempt: int, replies: list[str], errors: str | None) -> Any:
    """What the attempt asks next."""
    found = read_recording(Path(recording))
    config, sizes, left = found.run.config, list[tuple[int, int]](), list(replies)

    async def ask(
        role: str, messages: tuple[Message, ...], fit: Fit, *, more_output: bool
    ) -> Reply:
        prompt = as_text(messages)
        if not left:
            raise Paused(prompt=prompt, role=role)
        reply = left.pop(0)
        sizes.append((len(prompt.encode()), len(reply.encode())))
        return Reply(text=reply, model="asked")

    async def build_errors(candidate: Candidate) -> str:
        if errors is None:
            raise Paused(build=candidate.source)
        return errors

    known = inspect.signature(Assignment).parameters
    given: dict[str, Any] = {
        "problem": found.run.problem,
        "language": language(config.language),
        "reference": found.reference,
        "tree": Tree.replay(
            found.reference.latency_ms, (node for node in found.nodes if node.id < attempt)
        ),
        "selection": found.selections[attempt],
        "attempt": attempt,
        "rng": random.Random(f"{config.seed}/{attempt}/window"),
        "window_tokens": config.window_tokens,
    }
    work = Assignment(**{name: value for name, value in given.items() if name in known})
    write = team_of(config.strategy).write
    builds = [build_errors] if "build_errors" in inspect.signature(write).parameters else []
    try:
        draft = await write(work, ask, *builds)
    except Paused as paused:
        return {"sizes": sizes, **paused.needs}
    if draft.source is None:
        return {"sizes": sizes, "fault": draft.fault}
    return {"sizes": sizes, "source": draft.source}


if __name__ == "__main__":
    json.dump(asyncio.run(step(**json.load(sys.stdin))), sys.stdout)
