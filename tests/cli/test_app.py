from __future__ import annotations

import subprocess
import sys
import time

import pytest
from cli_samples import Stark

from stark.cli.requests import Course
from stark.cli.settings import Settings

HEAVY = ("torch", "sqlalchemy", "pydantic", "pydantic_ai", "rich.live", "asyncio")

LOADED = """
import sys
from stark.cli.app import main
code = main({arguments!r})
print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)
sys.exit(code)
"""


def test_help_loads_nothing_heavy() -> None:
    script = LOADED.format(arguments=["--help"], heavy=HEAVY)

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )

    assert 0 == done.returncode
    assert "[]" == done.stderr.strip()
    assert "optimize" in done.stdout


def test_help_answers_at_once() -> None:
    def seconds() -> float:
        began = time.monotonic()
        subprocess.run(
            [sys.executable, "-m", "stark.cli", "--help"], capture_output=True, check=True
        )
        return time.monotonic() - began

    assert min(seconds() for _ in range(3)) < 0.5


@pytest.mark.parametrize(
    "command", "optimize resume evaluate runs show record worker doctor".split()
)
def test_every_command_explains_itself(stark: Stark, command: str) -> None:
    ended = stark(command, "--help")

    assert 0 == ended.code
    assert f"stark {command}" in ended.out


@pytest.mark.parametrize(
    ("command", "option", "value"),
    [
        ("optimize", "--attempts", Settings().budget.attempts),
        ("optimize", "--strategy", Settings().strategy),
        ("optimize", "--parallel", Settings().parallel),
        ("optimize", "--seed", "random"),
        ("optimize", "--store", Settings().store),
        ("optimize", "--executor", Settings().executor),
        ("optimize", "--language", "the best for the device"),
        ("optimize", "--start", Course().start),
        ("optimize", "--stop", Course().stop),
        ("optimize", "--window-tokens", Course().window_tokens),
        ("resume", "--attempts", "as many as before"),
        ("resume", "--stop", "as the run began"),
        ("evaluate", "--effort", "promote"),
        ("bench kernelbench", "--level", 1),
        ("bench kernelbench", "--problems", "all"),
        ("bench kernelbench", "--path", "as set"),
        ("bench folder", "--attempts", Settings().budget.attempts),
        ("bench folder", "--in-each", Settings().parallel),
        ("bench folder", "--model-slots", "no limit"),
        ("bench folder", "--name", "made from what it consists of"),
        ("bench folder", "--output", "beside the store"),
    ],
)
def test_help_tells_what_holds_by_default(
    stark: Stark, monkeypatch: pytest.MonkeyPatch, command: str, option: str, value: object
) -> None:
    monkeypatch.setenv("COLUMNS", "400")

    lines = stark(*command.split(), "--help").out.splitlines()

    (line,) = (line for line in lines if option in line.split())
    assert f"[default: {value}]" in line


def test_a_flag_takes_no_value_in_help(stark: Stark) -> None:
    said = "".join(stark(command, "--help").out for command in ("show", "worker", "record"))

    flags = [line for line in said.splitlines() if "--help" not in line]
    assert "bool" not in "".join(flags)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "Usage: stark"),
        ("optimize --bogus", "No such option: --bogus"),
        ("optimize", "error: name a problem"),
        ("optimize problem.py", "error: no model is given: write `--model anthropic:NAME`"),
        ("optimize nope.py --model exec:cat", "error: There is no file nope.py"),
        ("optimize problem.py --model gpt", "error: unknown model 'gpt'"),
        ("optimize problem.py --plan-model exec:cat", "error: the code role has no model"),
        ("optimize problem.py --model exec:cat --strategy luck", "error: There is no strategy"),
        ("optimize problem.py --model exec:cat --executor moon", "error: 'moon' is not an executor"),
        ("optimize problem.py --model exec:cat --language basic", "error: there is no language"),
        ("optimize problem.py --model exec:cat --dollars -1", "error: --dollars is -1.0"),
        ("evaluate problem.py nope.py", "error: there is no file nope.py"),
        ("evaluate problem.py problem.py", "problem.py: The file does not define a class ModelNew"),
        ("show", "error: there are no runs yet"),
        ("worker nowhere", "error: nowhere has no requests"),
    ],
)
def test_wrong_use_is_told_in_a_sentence(stark: Stark, arguments: str, said: str) -> None:
    ended = stark(*arguments.split())

    assert 2 == ended.code
    assert said in ended.out + ended.err


def test_other_systems_are_refused(stark: Stark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stark.cli.app.sys.platform", "darwin")

    assert (2, "", True) == (stark("runs")[0], stark("runs")[1], "Linux only" in stark("runs")[2])


def test_a_bug_keeps_its_traceback(stark: Stark, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> int:
        raise RuntimeError("a bug")

    monkeypatch.setattr("stark.cli.reading.list_runs", broken)

    with pytest.raises(RuntimeError, match="a bug"):
        stark("runs")


def test_version(stark: Stark) -> None:
    from stark import __version__

    assert (0, f"{__version__}\n", "") == stark("--version")
