from __future__ import annotations

import resource
import subprocess
import sys

import pytest
from cli_samples import Stark

from stark.cli.options import flag
from stark.options import RunOptions
from stark.store import STORE

HEAVY = ("torch", "sqlalchemy", "pydantic_ai", "rich.live", "asyncio")

LOADED = """
import sys
from stark.cli.app import main
code = main({arguments!r})
print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.slow
def test_help_loads_nothing_heavy() -> None:
    script = LOADED.format(arguments=["--help"], heavy=HEAVY)

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )

    assert 0 == done.returncode
    assert "[]" == done.stderr.strip()
    assert "optimize" in done.stdout


@pytest.mark.slow
def test_help_answers_at_once() -> None:
    """In time of the processor: whatever else the machine does may come between."""

    def seconds() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "stark", "--help"], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime

    assert min(seconds() for _ in range(3)) < 0.8  # 0.3 on a quiet machine


COMMANDS = [
    *"optimize resume demo evaluate runs show record worker doctor bench".split(),
    *(f"bench {name}" for name in "run resume report list".split()),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(stark: Stark, command: str) -> None:
    ended = stark(*command.split(), "--help")

    assert 0 == ended.code
    assert f"Usage: stark {command} " in ended.out
    assert "<bool>" not in ended.out, "a flag takes no value"


def test_the_group_of_all_commands_is_plain_too(stark: Stark) -> None:
    assert "<bool>" not in stark("--help").out


KEPT = ("strategy", "language", "seed", "precision", "backward", "device_class")


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        ("optimize", ()),
        ("resume", KEPT),
        ("bench run", ("seed",)),
        ("bench resume", (*KEPT, "attempts")),
    ],
)
def test_every_option_of_a_run_is_an_option_of_the_command(
    stark: Stark, monkeypatch: pytest.MonkeyPatch, command: str, kept: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    words = stark(*command.split(), "--help").out.split()

    assert {name for name in RunOptions.model_fields if flag(name) not in words} == set(kept)


@pytest.mark.parametrize(
    ("command", "option", "value"),
    [
        ("optimize", "--attempts", RunOptions().attempts),
        ("optimize", "--strategy", RunOptions().strategy),
        ("optimize", "--parallel", RunOptions().parallel),
        ("optimize", "--store", STORE),
        ("optimize", "--executor", RunOptions().executor),
        ("optimize", "--stop", RunOptions().stop),
        ("optimize", "--window-tokens", RunOptions().window_tokens),
        ("evaluate", "--effort", "promote"),
        ("bench run", "--level", 1),
        ("bench run", "--problems", "all"),
        ("bench run", "--attempts", RunOptions().attempts),
        ("bench run", "--parallel", 1),
        ("bench run", "--model-slots", "no limit"),
        ("bench run", "--name", "made from its contents"),
        ("bench run", "--output", "beside the store"),
    ],
)
def test_help_tells_what_holds_by_default(
    stark: Stark, monkeypatch: pytest.MonkeyPatch, command: str, option: str, value: object
) -> None:
    monkeypatch.setenv("COLUMNS", "400")

    lines = stark(*command.split(), "--help").out.splitlines()

    (line,) = (line for line in lines if option in line.split())
    assert f"[default: {value}]" in line


@pytest.mark.parametrize("option", ["--attempts", "--stop", "--build-s"])
def test_a_run_that_goes_on_keeps_its_own_values(stark: Stark, option: str) -> None:
    (line,) = (line for line in stark("resume", "--help").out.splitlines() if f" {option} " in line)
    assert "default" not in line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "Usage: stark"),
        ("optimize --bogus", "No such option: --bogus"),
        ("optimize", "error: name a problem"),
        (
            "optimize problem.py",
            "error: no model is given: set --model (or STARK_MODEL) to one, such as",
        ),
        ("optimize nope.py --model exec:cat", "error: There is no file nope.py"),
        ("optimize problem.py --model gpt", "error: unknown model 'gpt'"),
        (
            "optimize problem.py --plan-model exec:cat",
            "error: no model is given for code and debug: give each of them a model",
        ),
        (
            "optimize problem.py --model exec:cat --strategy luck",
            "error: there is no strategy 'luck'",
        ),
        (
            "optimize problem.py --model exec:cat --executor moon",
            "error: 'moon' is not an executor",
        ),
        ("optimize problem.py --model exec:cat --language basic", "error: there is no language"),
        ("optimize problem.py --model exec:cat --dollars -1", "error: --dollars is -1.0"),
        ("optimize problem.py --model exec:cat --price 3", "--price is '3', and should be written"),
        ("optimize problem.py --model exec:cat --price -1/2", "--price is '-1/2'"),
        ("optimize problem.py --model exec:cat --stop never", "error: --stop is 'never'"),
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

    ended = stark("--version")
    assert (0, f"{__version__}\n", "") == (ended.code, ended.out, ended.err)
