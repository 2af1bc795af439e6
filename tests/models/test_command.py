from __future__ import annotations

import asyncio
import shlex
from pathlib import Path
from typing import Any

import pytest

from stark.core.call import Message
from stark.core.errors import ModelRefused, ModelUnreachable, PromptRefused, UsageError
from stark.core.usage import Price
from stark.models import command
from stark.models.command import CommandModel, as_text
from support.processes import eventually, is_gone, pids

QUESTION = (Message(speaker="system", text="be brief"), Message(speaker="user", text="say hello"))


async def test_reply_is_what_the_command_prints() -> None:
    reply = await CommandModel("cat; echo done").ask(QUESTION, 0.8)

    assert "be brief\n\nsay hello\ndone\n" == reply.text
    assert "cat" == reply.model


async def test_tokens_and_price_are_unknown() -> None:
    usage = (await CommandModel("echo hi").ask(QUESTION, None)).usage

    assert (None, None, None) == (
        usage.input_tokens,
        usage.output_tokens,
        usage.dollars,
    )
    assert usage.seconds > 0


@pytest.mark.parametrize(
    ("written", "reported"),
    [
        ('{"input_tokens": 12000, "output_tokens": 900, "dollars": 0.05}', (12000, 900, 0.05)),
        ('{"input_tokens": 7}', (7, None, None)),
        ('{"output_tokens": 3, "dollars": null}', (None, 3, None)),
    ],
)
async def test_a_command_may_report_its_usage(
    written: str, reported: tuple[int | None, int | None, float | None]
) -> None:
    command = f"echo hi; echo '{written}' > $STARK_USAGE_FILE"

    usage = (await CommandModel(command).ask(QUESTION, None)).usage

    assert reported == (usage.input_tokens, usage.output_tokens, usage.dollars)


@pytest.mark.parametrize(
    ("written", "dollars"),
    [
        ('{"input_tokens": 1000, "output_tokens": 100}', 0.0028),
        ('{"input_tokens": 1000, "output_tokens": 100, "dollars": 0.05}', 0.05),
        ('{"output_tokens": 100}', None),
    ],
)
async def test_a_users_price_computes_the_dollars_that_a_command_does_not_report(
    written: str, dollars: float | None
) -> None:
    price = Price(input_per_million=2, output_per_million=8)
    model = CommandModel(f"echo hi; echo '{written}' > $STARK_USAGE_FILE", price=price)

    assert price == model.price
    assert dollars == (await model.ask(QUESTION, None)).usage.dollars


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("twelve", "the file: Invalid JSON"),
        ('{"input_tokens": -1}', "input_tokens: Input should be greater than or equal to 0"),
        ('{"dollars": NaN}', "dollars: Input should be a finite number"),
        ('{"tokens": 5}', "tokens: Extra inputs are not permitted"),
        ("", "the file: Invalid JSON"),
    ],
)
async def test_an_invalid_usage_report_refuses_the_model_since_budgets_depend_on_it(
    written: str, reason: str
) -> None:
    command = f"echo hi; echo '{written}' > $STARK_USAGE_FILE"

    with pytest.raises(ModelRefused, match=f"exec:echo wrote an invalid usage.*{reason}"):
        await CommandModel(command).ask(QUESTION, None)


async def test_the_usage_of_a_failed_try_is_not_reported(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    command = (
        f"if [ -e {mark} ]; then echo fine; "
        f"else touch {mark}; echo '{{\"dollars\": 9}}' > $STARK_USAGE_FILE; exit 1; fi"
    )

    reply = await CommandModel(command).ask(QUESTION, None)

    assert ("fine\n", None) == (reply.text, reply.usage.dollars)


async def test_concurrent_calls_have_separate_usage_files(tmp_path: Path) -> None:
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
def test_a_text_without_a_command_is_wrong_use(command: str) -> None:
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


def test_consecutive_user_messages_need_no_headings() -> None:
    parts = (*QUESTION, Message(speaker="user", text="and goodbye"))

    assert "be brief\n\nsay hello\n\nand goodbye\n" == as_text(parts)


async def test_a_failing_command_refuses_the_prompt_with_the_end_of_its_errors(
    tmp_path: Path,
) -> None:
    runs = tmp_path / "runs"
    command = f"echo run >> {runs}; echo 'no licence' >&2; exit 3"

    with pytest.raises(PromptRefused, match=r"exited with status 3.*no licence"):
        await CommandModel(command).ask(QUESTION, None)

    assert ["run", "run"] == runs.read_text().split()


async def test_a_command_that_fails_once_is_run_again(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    command = f"if [ -e {mark} ]; then echo fine; else touch {mark}; exit 1; fi"

    assert "fine\n" == (await CommandModel(command).ask(QUESTION, None)).text


async def test_a_command_that_prints_nothing_refuses_the_prompt() -> None:
    with pytest.raises(PromptRefused, match="printed nothing"):
        await CommandModel("cat > /dev/null").ask(QUESTION, None)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("no-such-agent -p", r"exec:no-such-agent exited with status 127.*not found"),
        ("/etc/passwd -p", r"exec:passwd exited with status 126"),
    ],
)
async def test_a_command_that_the_shell_cannot_run_refuses_the_model(
    command: str, reason: str
) -> None:
    with pytest.raises(ModelRefused, match=reason):
        await CommandModel(command).ask(QUESTION, None)


async def test_a_command_that_cannot_start_refuses_the_model() -> None:
    too_long = "true " + "x" * 140_000  # Linux: 128 KiB for one argument

    with pytest.raises(ModelRefused, match="exec:true cannot start"):
        await CommandModel(too_long).ask(QUESTION, None)


async def test_undecodable_output_is_replaced() -> None:
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


async def test_cancelling_while_the_command_starts_ends_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, start = tmp_path / "pids", asyncio.create_subprocess_exec

    async def slowly(*command: str, **more: Any) -> asyncio.subprocess.Process:
        process = await start(*command, **more)
        await asyncio.sleep(0.3)
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", slowly)
    # The one that watches this process comes too late: it would wait for a writer of a closed pipe.
    late = command._WATCHED.replace("(read", "(sleep 0.2; read")
    monkeypatch.setattr(command, "_WATCHED", late)
    asking = asyncio.create_task(
        CommandModel(f"sleep 60 & echo $! $$ > {started}; wait").ask(QUESTION, None)
    )
    assert await asyncio.to_thread(eventually, lambda: len(pids(started)) == 2)

    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking

    assert all(is_gone(pid) for pid in pids(started))


async def test_a_child_that_holds_the_output_open_is_ended_at_the_timeout(tmp_path: Path) -> None:
    started = tmp_path / "pids"
    command = f"sleep 60 & echo $! > {started}"

    with pytest.raises(ModelUnreachable):
        await CommandModel(command, timeout_s=0.3).ask(QUESTION, None)

    assert 1 == len(pids(started))
    assert eventually(lambda: is_gone(pids(started)[0]))


async def test_a_command_may_wait_for_all_its_children() -> None:
    waits = "import os\ntry:\n    os.wait()\nexcept ChildProcessError:\n    print('none')"

    reply = await CommandModel(f"exec python3 -c {shlex.quote(waits)}", timeout_s=20).ask(
        QUESTION, None
    )

    assert "none\n" == reply.text
