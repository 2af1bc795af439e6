"""Asks a model, or replays its recorded replies, in recorded situations of each role and checks the replies.

    python benchmarks/prompts.py --model anthropic:NAME      # ask a live model; this costs money
    python benchmarks/prompts.py --model 'exec:my-agent -p' --role plan
    python benchmarks/prompts.py                             # check the recorded replies
    python benchmarks/prompts.py --show debug_crashed        # print a prompt
    python benchmarks/prompts.py --rebuild RECORDING…       # tokens of a recorded run's prompts, then and today
    python benchmarks/prompts.py --take RECORDING ATTEMPT ROLE NAME   # make a situation from a recorded run

`docs/notes/prompts.md` describes the checks. Exits 1 if a check fails.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any, get_args

from prompting.checks import Check, Conversation, checks, converse
from prompting.rebuilding import rebuilt
from prompting.situation import FOLDER, Situation, situations, write
from prompting.taking import take

from stark.agents.roles import Ask
from stark.agents.window import RoleName
from stark.core.call import Fit, Message, Reply
from stark.core.errors import StarkError
from stark.core.usage import Spent, estimated_tokens, spent_on, utf8_bytes
from stark.correspondence import plain
from stark.explain.run import token_count
from stark.models import Model, open_model
from stark.recorded import read_recording
from stark.report.spending import ESTIMATED

TEMPERATURES: dict[RoleName, float] = {"plan": 0.8, "code": 0.1, "debug": 0.1, "solo": 0.8}


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _parsed(arguments)
    if chosen.take:
        return _take(*chosen.take)
    known = situations()
    asked = {
        name: situation
        for name, situation in known.items()
        if situation.role in (chosen.role or (situation.role,))
        and name in (chosen.situation or (name,))
    }
    if chosen.rebuild:
        _rebuild(chosen.rebuild)
        return 0
    if chosen.show:
        print(asyncio.run(_prompt(known[chosen.show])))
        return 0
    try:
        model = open_model(chosen.model) if chosen.model else None
        if model is None:
            asked = {name: situation for name, situation in asked.items() if situation.replies}
        answered = asyncio.run(_ask_all(asked, model, chosen.parallel))
    except StarkError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    results = {name: (each, checks(each)) for name, each in answered.items()}
    _print(results, chosen.json)
    return int(any(not check.passed for _, found in results.values() for check in found))


async def _ask_all(
    asked: dict[str, Situation], model: Model | None, parallel: int
) -> dict[str, Conversation]:
    slots = asyncio.Semaphore(parallel)

    async def one(situation: Situation) -> Conversation:
        async with slots:
            ask = recorded(situation) if model is None else live(situation, model)
            return await converse(situation, ask)

    done = await asyncio.gather(*(one(situation) for situation in asked.values()))
    return dict(zip(asked, done, strict=True))


def recorded(situation: Situation) -> Ask:
    """Answers with the recorded replies in order, and repeats the last one."""
    left = list(situation.replies)

    async def ask(
        role: str, messages: tuple[Message, ...], fit: Fit, *, more_output: bool
    ) -> Reply:
        return left.pop(0) if len(left) > 1 else left[0]

    return ask


def live(situation: Situation, model: Model) -> Ask:
    """Asks the model at the role's usual temperature."""

    async def ask(
        role: str, messages: tuple[Message, ...], fit: Fit, *, more_output: bool
    ) -> Reply:
        reply = await model.ask(messages, TEMPERATURES[situation.role])
        return reply.model_copy(update={"text": plain(reply.text)})

    return ask


async def _prompt(situation: Situation) -> str:
    """The role's prompt."""
    silent = Reply(text="", model="none")

    async def ask(
        role: str, messages: tuple[Message, ...], fit: Fit, *, more_output: bool
    ) -> Reply:
        return silent

    conversation = await converse(situation, ask)
    return "\n".join(message.text for message in conversation.asked[0])


def spent(conversation: Conversation) -> Spent:
    """What the conversation cost."""
    costs = (
        spent_on(
            reply.usage,
            sum(utf8_bytes(message.text) for message in messages),
            utf8_bytes(reply.text),
        )
        for messages, reply in zip(conversation.asked, conversation.replies, strict=True)
    )
    return sum(costs, Spent())


def _print(results: dict[str, tuple[Conversation, list[Check]]], as_json: bool) -> None:
    if as_json:
        print(json.dumps([_document(name, *result) for name, result in results.items()], indent=1))
        return
    print(
        f"{'situation':<30} {'role':<6} {'passed':>7} {'input':>9} {'output':>8} {'seconds':>8}  failed"
    )
    for name, (conversation, found) in results.items():
        took = spent(conversation)
        failed = ", ".join(check.name for check in found if not check.passed)
        passed = f"{sum(check.passed for check in found)}/{len(found)}"
        print(
            f"{name:<30} {conversation.situation.role:<6} {passed:>7} {token_count(took.input_tokens, took):>9} "
            f"{token_count(took.output_tokens, took):>8} {took.seconds:>8.1f}  {failed}"
        )
    every = [check for _, found in results.values() for check in found]
    print(f"{sum(check.passed for check in every)} of {len(every)} checks passed. {ESTIMATED}.")
    for name, (_, found) in results.items():
        for check in found:
            if not check.passed:
                print(f"  {name}: {check.name}: {check.found}")


def _document(name: str, conversation: Conversation, found: list[Check]) -> dict[str, Any]:
    return {
        "situation": name,
        "role": conversation.situation.role,
        "models": sorted({reply.model for reply in conversation.replies}),
        "checks": [check._asdict() for check in found],
        "usage": spent(conversation).model_dump(mode="json"),
        "replies": [reply.text for reply in conversation.replies],
    }


def _rebuild(paths: Sequence[str]) -> None:
    """Print the mean tokens of each role's prompts, as they were recorded and as they are written today."""
    then, today = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
    for path in paths:
        recording = read_recording(Path(path))
        for call in recording.calls:
            if all(message.speaker != "assistant" for message in call.messages):
                said = sum(utf8_bytes(message.text) for message in call.messages)
                then[call.role].append(estimated_tokens(said))
        for prompt in asyncio.run(rebuilt(recording)):
            today[prompt.role].append(prompt.tokens)
    print("role   prompts  then    today")
    for role, tokens in today.items():
        print(f"{role:<6} {len(tokens):>7} {mean(then[role]):>7,.0f} {mean(tokens):>8,.0f}")


def _take(recording: str, attempt: str, role: RoleName, name: str) -> int:
    path = FOLDER / f"{name}.json"
    taken = take(read_recording(Path(recording)), int(attempt), role, "")
    write(taken, path)
    print(f"{path}: now fill in `about` and `expected`")
    return 0


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    roles, names = get_args(RoleName), sorted(path.stem for path in FOLDER.glob("*.json"))
    parser.add_argument("--model", help="as for `stark optimize`; the recorded replies if omitted")
    parser.add_argument("--role", action="append", choices=roles, help="only this role")
    parser.add_argument("--situation", action="append", choices=names, help="only this situation")
    parser.add_argument("--parallel", type=int, default=4, help="questions at a time")
    parser.add_argument("--json", action="store_true", help="print JSON with every reply")
    parser.add_argument("--show", choices=names, help="print the prompt of this situation")
    parser.add_argument("--rebuild", nargs="+", metavar="RECORDING", help="count its tokens")
    parser.add_argument("--take", nargs=4, metavar=("RECORDING", "ATTEMPT", "ROLE", "NAME"))
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
