from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stark.core.call import Message
from stark.core.errors import ModelRefused, ModelUnreachable, UsageError
from stark.models.command import CommandModel, as_text

QUESTION = (Message(speaker="system", text="be brief"), Message(speaker="user", text="say hello"))


def eventually(happens: Callable[[], bool], within_s: float = 5.0) -> bool:
    deadline = time.monotonic() + within_s
    while not happens():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def is_gone(pid: int) -> bool:
    """Whether a process has ended; an orphan that nobody has reaped yet counts as ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


def pids(file: Path) -> list[int]:
    return [int(word) for word in file.read_text().split()] if file.exists() else []


async def test_reply_is_what_the_command_prints() -> None:
    reply = await CommandModel("cat; echo done").ask(QUESTION, 0.8)

    assert "be brief\n\nsay hello\ndone\n" == reply.text
    assert "cat" == reply.model


async def test_tokens_and_price_are_unknown() -> None:
    usage = (await CommandModel("echo hi").ask(QUESTION, None)).usage

    assert (1, None, None, None) == (
        usage.calls,
        usage.input_tokens,
        usage.output_tokens,
        usage.dollars,
    )
    assert usage.seconds > 0


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ('{"input_tokens": 12000, "output_tokens": 900, "dollars": 0.05}', (12000, 900, 0.05)),
        ('{"input_tokens": 7}', (7, None, None)),
        ('{"output_tokens": 3, "dollars": null}', (None, 3, None)),
    ],
)
async def test_a_command_may_tell_its_usage(
    written: str, told: tuple[int | None, int | None, float | None]
) -> None:
    command = f"echo hi; echo '{written}' > $STARK_USAGE_FILE"

    usage = (await CommandModel(command).ask(QUESTION, None)).usage

    assert told == (usage.input_tokens, usage.output_tokens, usage.dollars)
    assert 1 == usage.calls


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("twelve", "it: Invalid JSON"),
        ('{"input_tokens": -1}', "input_tokens: Input should be greater than or equal to 0"),
        ('{"dollars": NaN}', "dollars: Input should be a finite number"),
        ('{"tokens": 5}', "tokens: Extra inputs are not permitted"),
        ("", "it: Invalid JSON"),
    ],
)
async def test_what_is_no_usage_is_refused_since_limits_rest_on_it(
    written: str, reason: str
) -> None:
    command = f"echo hi; echo '{written}' > $STARK_USAGE_FILE"

    with pytest.raises(ModelRefused, match=f"exec:echo wrote to STARK_USAGE_FILE.*{reason}"):
        await CommandModel(command).ask(QUESTION, None)


async def test_the_usage_of_a_try_that_failed_is_not_told(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    command = (
        f"if [ -e {mark} ]; then echo fine; "
        f"else touch {mark}; echo '{{\"dollars\": 9}}' > $STARK_USAGE_FILE; exit 1; fi"
    )

    reply = await CommandModel(command).ask(QUESTION, None)

    assert ("fine\n", None) == (reply.text, reply.usage.dollars)


async def test_questions_at_once_have_files_of_their_own(tmp_path: Path) -> None:
    files = tmp_path / "files"
    command = f"echo $STARK_USAGE_FILE | tee -a {files}"

    await asyncio.gather(*(CommandModel(command).ask(QUESTION, None) for _ in range(3)))

    names = files.read_text().split()
    assert 3 == len(set(names))
    assert not any(Path(name).exists() for name in names)


@pytest.mark.parametrize(
    ("command", "label", "model"),
    [
        ("claude -p", None, "claude"),
        ("/opt/bin/agent --fast", None, "agent"),
        ("KEY='a b' OTHER=1 agent", None, "agent"),
        ("(agent;true)|cat", None, "agent"),
        ("claude -p", "claude-code", "claude-code"),
    ],
)
def test_name_is_the_label_or_the_program(command: str, label: str | None, model: str) -> None:
    assert f"exec:{model}" == CommandModel(command, label).name


async def test_reply_is_recorded_under_the_label() -> None:
    assert "parrot" == (await CommandModel("cat", "parrot").ask(QUESTION, None)).model


@pytest.mark.parametrize("command", ["echo 'oh", "A=1", "  "])
def test_what_is_no_command_is_wrong_use(command: str) -> None:
    with pytest.raises(UsageError):
        CommandModel(command)


def test_a_longer_conversation_has_a_heading_for_each_turn() -> None:
    longer = (
        *QUESTION,
        Message(speaker="assistant", text="good day"),
        Message(speaker="user", text="no, hello"),
    )

    expected = (
        "===== INSTRUCTIONS =====\n\nbe brief\n\n"
        "===== MESSAGE =====\n\nsay hello\n\n"
        "===== YOUR REPLY =====\n\ngood day\n\n"
        "===== MESSAGE =====\n\nno, hello\n"
    )
    assert expected == as_text(longer)


async def test_a_failing_command_is_refused_with_the_end_of_its_errors(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    command = f"echo run >> {runs}; echo 'no licence' >&2; exit 3"

    with pytest.raises(ModelRefused, match=r"ended with status 3.*no licence"):
        await CommandModel(command).ask(QUESTION, None)

    assert ["run", "run"] == runs.read_text().split()


async def test_a_command_that_fails_once_is_forgiven(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    command = f"if [ -e {mark} ]; then echo fine; else touch {mark}; exit 1; fi"

    assert "fine\n" == (await CommandModel(command).ask(QUESTION, None)).text


async def test_a_command_that_prints_nothing_is_refused() -> None:
    with pytest.raises(ModelRefused, match="printed nothing"):
        await CommandModel("cat > /dev/null").ask(QUESTION, None)


async def test_a_command_that_is_not_there_is_refused_by_its_shell() -> None:
    with pytest.raises(ModelRefused, match=r"exec:no-such-agent ended with status 127.*not found"):
        await CommandModel("no-such-agent -p").ask(QUESTION, None)


async def test_output_that_is_not_text_is_kept_as_far_as_it_is() -> None:
    reply = await CommandModel(r"printf 'caf\303\251 \377 end'").ask(QUESTION, None)

    assert "café � end" == reply.text


async def test_a_big_question_and_a_big_reply_do_not_block_each_other() -> None:
    big = (Message(speaker="user", text="0123456789abcdef" * 65536),)

    reply = await CommandModel("cat", timeout_s=20).ask(big, None)

    assert big[0].text + "\n" == reply.text


async def test_a_command_need_not_read_a_big_question() -> None:
    big = (Message(speaker="user", text="0123456789abcdef" * 65536),)

    assert "ok\n" == (await CommandModel("echo ok", timeout_s=20).ask(big, None)).text


async def test_a_timeout_ends_the_command_and_its_children(tmp_path: Path) -> None:
    started = tmp_path / "pids"
    command = f"sleep 60 & echo $! $$ > {started}; wait"

    with pytest.raises(ModelUnreachable, match=r"no answer within 0\.3 s"):
        await CommandModel(command, timeout_s=0.3).ask(QUESTION, None)

    assert 2 == len(pids(started))
    assert eventually(lambda: all(is_gone(pid) for pid in pids(started)))


async def test_cancelling_ends_the_command_and_its_children(tmp_path: Path) -> None:
    started = tmp_path / "pids"
    command = f"sleep 60 & echo $! $$ > {started}; wait"
    asking = asyncio.create_task(CommandModel(command).ask(QUESTION, None))
    assert await asyncio.to_thread(eventually, lambda: len(pids(started)) == 2)

    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking

    assert eventually(lambda: all(is_gone(pid) for pid in pids(started)))


async def test_a_child_that_holds_the_output_open_is_ended_at_the_timeout(tmp_path: Path) -> None:
    started = tmp_path / "pids"
    command = f"sleep 60 & echo $! > {started}"

    with pytest.raises(ModelUnreachable):
        await CommandModel(command, timeout_s=0.3).ask(QUESTION, None)

    assert 1 == len(pids(started))
    assert eventually(lambda: is_gone(pids(started)[0]))
