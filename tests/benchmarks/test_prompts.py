"""The regression set of prompts: what every role would be asked today, and what was once answered."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import prompts
import pytest
from prompting.checks import Conversation, changed_lines, checks, converse
from prompting.rebuilding import rebuilt
from prompting.situation import Expected, Situation, read, situations, write
from prompting.taking import NOT_SHOWN, take
from prompts import recorded

from stark.agents.briefing import evidence_text, numbered
from stark.agents.window import RoleName
from stark.core.call import Fit, Message, Reply
from stark.core.run import WINDOW_TOKENS
from stark.core.usage import estimated_tokens
from stark.languages import language
from stark.recorded import read_recording
from support.replies import prompt_of

SITUATIONS = situations()
ANSWERED = {name: each for name, each in SITUATIONS.items() if each.replies}
RECORDINGS = Path(__file__).parents[2] / "examples" / "recordings"

HEADINGS: dict[RoleName, Sequence[str]] = {
    "plan": (
        *("# Your role: plan", "# The problem: ", "# The device", "# The reference"),
        *("# Rules for every candidate", "# The fastest so far"),
        *("# What was tried from here", "# Where you start", "# Your reply"),
    ),
    "code": (
        *("# Your role: code", "# The problem: ", "# The device", "# How to write candidates in "),
        *("# Other attempts nearby", "# The plan", "# Your reply"),
    ),
    "debug": (
        *("# Your role: debug", "# The problem: ", "# The device", "# How to write candidates in "),
        *("# The candidate's siblings", "# Its plan", "# The failing candidate"),
        *("# What happened", "# Your reply"),
    ),
    "solo": (
        *("# Your role: solo", "# The problem: ", "# The device", "# The reference"),
        *("# How to write candidates in ", "# The fastest so far", "# What was tried from here"),
        *("# Where you start", "# Your reply"),
    ),
}


async def asked(situation: Situation, window_tokens: int | None = None) -> Conversation:
    """The role's conversation with a model that answers nothing."""

    async def ask(
        role: str, messages: tuple[Message, ...], fit: Fit, *, more_output: bool
    ) -> Reply:
        return Reply(text="", model="none")

    return await converse(situation, ask, window_tokens)


def prompt_in(held: Conversation) -> str:
    return prompt_of(held.asked[0])


def test_every_role_has_situations_and_the_most_of_them_real_replies() -> None:
    assert set(get_args(RoleName)) == {each.role for each in SITUATIONS.values()}
    assert {"plan", "code", "debug"} == {each.role for each in ANSWERED.values()}
    assert 2 * len(ANSWERED) > len(SITUATIONS)


# What would be asked today.


@pytest.mark.parametrize("name", SITUATIONS)
async def test_all_parts_are_there_in_order(name: str) -> None:
    situation = SITUATIONS[name]
    text = prompt_in(await asked(situation))

    places = [f"\n{text}".find(f"\n{heading}") for heading in HEADINGS[situation.role]]
    assert -1 not in places
    assert sorted(places) == places


@pytest.mark.parametrize("name", SITUATIONS)
@pytest.mark.parametrize("window_tokens", [WINDOW_TOKENS, 1])
async def test_what_a_role_cannot_do_without_is_there_however_short_the_window(
    name: str, window_tokens: int
) -> None:
    situation = SITUATIONS[name]
    text = prompt_in(await asked(situation, window_tokens))
    node, taught = situation.window.node, language(situation.language)
    from_working = node is not None and node.works
    guidance = taught.guidance(situation.reference)
    guide = guidance.without_examples if from_working else guidance.guide

    assert situation.problem.source.strip() in text
    assert situation.reference.device.name in text
    assert (taught.form if situation.role == "plan" else guide.strip()) in text or (
        window_tokens > 1 and guidance.without_examples.strip() in text
    )
    if situation.plan is not None:
        assert situation.plan.strategy in text
        for anchor in situation.plan.anchors:
            assert f"<<<IMPROVE BEGIN {anchor.name}>>>" in text
    if situation.source is not None and not (situation.plan and situation.plan.anchors):
        shown = numbered(situation.source) if situation.role == "plan" else situation.source.strip()
        assert shown in text
    if situation.role == "debug":
        assert node is not None
        assert evidence_text(node) in text


@pytest.mark.parametrize("name", SITUATIONS)
async def test_prompts_fit_and_are_the_same_every_time(name: str) -> None:
    situation = SITUATIONS[name]
    whole = await asked(situation)
    (fit, *_), (messages, *_) = whole.fits, whole.asked

    assert whole.asked == (await asked(situation)).asked
    sent = sum(len(message.text.encode()) for message in messages)
    assert fit.tokens == pytest.approx(estimated_tokens(sent), abs=10)
    assert not fit.over
    assert () == fit.cuts, "the usual limit cuts none of these"


@pytest.mark.parametrize("name", SITUATIONS)
async def test_no_place_is_left_unfilled(name: str) -> None:
    text = prompt_in(await asked(SITUATIONS[name]))

    places = {
        *("problem_name", "problem_source", "inputs", "outputs", "device", "language", "reference"),
        *("form", "start", "children", "leaderboard", "reply_form", "strategy", "guide", "others"),
        *("marked", "anchors", "evidence", "source", "task"),
    }
    assert not places & set(re.findall(r"\$\{?(\w+)", text))


async def test_a_short_window_shows_fewer_of_the_others_and_says_so() -> None:
    situation = SITUATIONS["code_edit_with_neighbours"]
    whole = await asked(situation)
    tokens = whole.fits[0].tokens

    cut = await asked(situation, tokens - 500)

    (fit, *_) = cut.fits
    assert tokens - 500 >= fit.tokens
    assert {"outcome"} == {each.kept for each in fit.cuts}
    assert len(fit.cuts) == prompt_in(cut).count("(Its source is left out for length.)") > 0


# What was answered once.


@pytest.mark.parametrize("name", ANSWERED)
async def test_recorded_replies_still_pass(name: str) -> None:
    situation = ANSWERED[name]

    held = await converse(situation, recorded(situation))

    failed = {check.name for check in checks(held) if not check.passed}
    assert ({"at once"} if situation.refusal else set()) == failed
    assert len(situation.replies) == len(held.replies)


@pytest.mark.parametrize("name", [name for name, each in ANSWERED.items() if each.refusal])
async def test_what_was_refused_is_refused_for_the_same_reason(name: str) -> None:
    situation = ANSWERED[name]

    held = await converse(situation, recorded(situation))

    assert situation.refusal in held.asked[1][-1].text


@pytest.mark.parametrize("name", ANSWERED)
async def test_a_reply_that_was_cut_off_passes_no_longer(name: str) -> None:
    """So that no check passes whatever comes back."""
    situation = ANSWERED[name]
    cut = situation.replies[-1].model_copy(update={"text": situation.replies[-1].text[:60]})

    held = await converse(situation, recorded(situation.model_copy(update={"replies": (cut,)})))

    failed = {check.name for check in checks(held) if not check.passed}
    assert failed >= {"in form", "at once"} or (situation.role == "plan" and failed)


# The checks themselves.


async def test_a_repair_must_change_something_and_not_too_much() -> None:
    situation = SITUATIONS["debug_incorrect_in_part"]
    assert situation.source is not None
    wrong, right = situation.source, situation.source.replace("rows - 1; ++row", "rows; ++row")
    rewritten = right + "\n".join(f"# remark {number}" for number in range(9))

    outcomes = {}
    for name, source in {"same": wrong, "right": right, "rewritten": rewritten}.items():
        reply = Reply(text=f"Cause.\n```python\n{source}\n```\n", model="scripted")
        held = await converse(
            situation, recorded(situation.model_copy(update={"replies": (reply,)}))
        )
        outcomes[name] = {check.name for check in checks(held) if not check.passed}

    assert set() == outcomes["right"]
    assert {"at most 3 lines changed", "never rows - 1"} == outcomes["same"]
    assert {"at most 3 lines changed"} == outcomes["rewritten"]


def test_changed_lines_count_the_longer_side() -> None:
    assert 0 == changed_lines("a\nb\n", "a\nb\n")
    assert 1 == changed_lines("a\nb\n", "a\nc\n")
    assert 2 == changed_lines("a\n", "b\nc\n")
    assert 3 == changed_lines("a\nb\nc\nd\n", "d\n")


# Taking one, and the command.


def test_a_situation_is_taken_with_the_window_that_was_shown(tmp_path: Path) -> None:
    recording = read_recording(RECORDINGS / "repairs.cpp.json")

    taken = take(recording, 9, "debug", "A loop.")
    write(taken, tmp_path / "taken.json")

    assert taken == read(tmp_path / "taken.json")
    stored = SITUATIONS["debug_crashed"]
    changed = {"about": stored.about, "expected": stored.expected}
    assert stored == taken.model_copy(update=changed)
    assert [(1, 6)] == [(pair.broken.id, pair.fixed.id) for pair in stored.window.repairs]
    call = next(call for call in recording.calls if (call.attempt, call.role) == (9, "debug"))
    for shown in stored.window.others:
        assert f"- Attempt {shown.id}, " in prompt_of(call.messages)


def test_a_plans_situation_has_no_sources_of_others() -> None:
    window = SITUATIONS["plan_near_the_roofline"].window

    assert {NOT_SHOWN} == {each.candidate.source for each in window.others if each.candidate}


def test_a_role_that_was_not_asked_cannot_be_taken() -> None:
    with pytest.raises(ValueError, match="no debug call of attempt 1"):
        take(read_recording(RECORDINGS / "repairs.cpp.json"), 1, "debug", "Nothing.")


def test_the_command_checks_recorded_replies(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == prompts.main(["--role", "code", "--role", "debug"])

    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:3] == ["code_edit_cpp", "code", "4/4"]
    assert "solo_improve" not in "\n".join(lines), "nobody answered it"


def test_the_command_fails_with_a_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert 1 == prompts.main(["--situation", "plan_split_statement"])

    assert (
        "plan_split_statement: at once: Your reply cannot be used: Anchor"
        in capsys.readouterr().out
    )


def test_the_command_asks_a_live_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that always repairs the same way, and tells its tokens."""
    situation = SITUATIONS["debug_incorrect_in_part"]
    assert situation.source is not None
    right = situation.source.replace("rows - 1; ++row", "rows; ++row")
    (tmp_path / "reply.md").write_text(f"It stopped a row short.\n```python\n{right}\n```\n")
    (tmp_path / "usage.json").write_text('{"input_tokens": 3000, "output_tokens": 700}')
    command = f"cat {tmp_path}/reply.md; cp {tmp_path}/usage.json $STARK_USAGE_FILE"

    chosen = ["--situation", "debug_incorrect_in_part", "--situation", "plan_split_statement"]
    code = prompts.main(["--model", f"exec[scripted]:{command}", *chosen, "--json"])

    right_one, other = json.loads(capsys.readouterr().out)
    assert 1 == code
    assert all(check["passed"] for check in right_one["checks"])
    assert not all(check["passed"] for check in other["checks"])
    assert (3000, 0) == (
        right_one["usage"]["input_tokens"],
        right_one["usage"]["estimated_calls"],
    )
    assert ["scripted"] == right_one["models"]


def test_a_model_that_cannot_be_asked_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert 1 == prompts.main(["--model", "exec:exit 3", "--situation", "solo_at_the_root"])

    assert capsys.readouterr().err.startswith("error: exec:exit exited with status 3")


def test_the_prompt_of_a_situation_can_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == prompts.main(["--show", "debug_crashed"])

    assert "# Your role: debug" in capsys.readouterr().out


def test_what_is_expected_is_patterns_that_can_be_read() -> None:
    for situation in SITUATIONS.values():
        for pattern in (*situation.expected.names, *situation.expected.never):
            re.compile(pattern)
        assert Expected() != situation.expected, situation.about


# Recorded runs.


@pytest.mark.parametrize("path", sorted(RECORDINGS.glob("*.json*")), ids=lambda path: path.name)
async def test_a_recorded_run_is_asked_the_same_questions_today(path: Path) -> None:
    recording = read_recording(path)

    prompts = await rebuilt(recording)

    asked = [
        (call.attempt, call.role)
        for call in recording.calls
        if all(message.speaker != "assistant" for message in call.messages)
    ]
    assert sorted(asked) == sorted((prompt.attempt, prompt.role) for prompt in prompts)
    assert all(1_000 < prompt.tokens < WINDOW_TOKENS for prompt in prompts)
