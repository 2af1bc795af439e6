"""From options to the configuration of a run."""

from __future__ import annotations

from typing import Any

import pytest

from stark import configuration
from stark.configuration import configure, device_kind, new_run, reconfigured
from stark.core.errors import UsageError
from stark.core.judging import Limits, Tools
from stark.core.problem import Problem
from stark.core.run import Run
from stark.core.usage import Budget, Price
from stark.options import RunOptions, checked_options

RELU = Problem(name="relu", source="")


def made(**options: Any) -> Run:
    given = {"model": "exec:all", "language": "cpp", "executor": "local:cpu", **options}
    return new_run(RELU, configure(checked_options(given)), ())


def test_an_id_is_the_problems_name_and_four_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    digits = iter(["0000", "0000", "0001"])
    monkeypatch.setattr(configuration.secrets, "token_hex", lambda _: next(digits))
    problem, config = Problem(name="level1/23_Softmax", source=""), made(seed=1).config

    assert "23-softmax-0000" == new_run(problem, config, ()).id
    assert "23-softmax-0001" == new_run(problem, config, {"23-softmax-0000"}).id


@pytest.mark.parametrize(
    ("executor", "kind"),
    [
        ("local:cpu", "cpu"),
        ("local:cuda:1", "cuda"),
        ("command:ssh box python -m stark.evaluator.judge", "cuda"),
        ("folder:/queue", "cuda"),
    ],
)
def test_device_kind_of_an_executor(executor: str, kind: str) -> None:
    assert kind == device_kind(executor)


def test_hidden_devices_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    assert "cpu" == device_kind("local")


def test_options_become_a_configuration_without_defaults() -> None:
    config = made(
        strategy="stark:epsilon-greedy(epsilon=0.25)",
        debug_model="exec:debug",
        code_temperature=0,
        price="3/15",
        attempts=7,
        dollars=2,
        build_s=9,
        precision="tf32",
        sanitizer=True,
        seed=0,
    ).config

    assert ("stark:epsilon-greedy(epsilon=0.25)", "epsilon-greedy", 0.25, 0) == (
        config.strategy.name,
        config.strategy.policy,
        config.strategy.parameters["epsilon"],
        config.seed,
    )
    assert {"plan": ("exec:all", 0.8), "code": ("exec:all", 0.0), "debug": ("exec:debug", 0.1)} == {
        role: (entry.model, entry.temperature) for role, entry in config.models.items()
    }
    price = Price(input_per_million=3, output_per_million=15)
    assert {price} == {entry.price for entry in config.models.values()}
    assert Budget(attempts=7, dollars=2) == config.budget
    assert (Limits(build_s=9, precision="tf32"), Tools(sanitizer=True)) == (
        config.limits,
        config.tools,
    )


def test_a_run_without_a_seed_gets_a_random_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration.secrets, "randbelow", lambda most: most - 1)

    assert 9_999 == made().config.seed


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"attempt": 3}, "there is no option 'attempt'; the options are model, plan_model"),
        ({"attempts": 0}, "attempts is 0, and should be greater than or equal to 1"),
        ({"stop": "never"}, "stop is 'never', and should be 'budget' or 'auto'"),
        ({"price": "cheap"}, "price is 'cheap', and should be written INPUT"),
        ({"strategy": "sampling", "plan_model": "exec:x"}, "sampling has no plan role"),
        ({"strategy": "luck"}, "there is no strategy 'luck'"),
        ({"model": None}, "no model is given"),
        (
            {"model": None, "code_model": "exec:x"},
            "no model is given for plan and debug: give each",
        ),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        made(**options)


def test_a_change_leaves_everything_else_as_the_run_began() -> None:
    run = made(attempts=7, dollars=2, build_s=9, sanitizer=True, parallel=3, seed=4)

    changed = reconfigured(
        run, {"attempts": 9, "memory_gb": 8, "counters": True, "code_model": "exec:new"}
    )

    config = run.config
    code = config.models["code"].model_copy(update={"model": "exec:new"})
    updates = {
        "budget": Budget(attempts=9, dollars=2),
        "limits": Limits(build_s=9, memory_gb=8),
        "tools": Tools(counters=True, sanitizer=True),
        "models": {**config.models, "code": code},
    }
    assert run.model_copy(update={"config": config.model_copy(update=updates)}) == changed
    assert run == reconfigured(run, {})
    priced = reconfigured(run, {"price": "1/2", "plan_temperature": 0.0}).config.models["plan"]
    assert (Price(input_per_million=1, output_per_million=2), 0.0) == (
        priced.price,
        priced.temperature,
    )


@pytest.mark.parametrize("name", ["strategy", "language", "seed", "precision"])
def test_what_a_run_keeps_cannot_be_changed(name: str) -> None:
    with pytest.raises(UsageError, match=f"a run keeps its {name}; start a new run to change it"):
        reconfigured(made(), {name: getattr(RunOptions(), name)})


def test_a_role_that_the_strategy_lacks_takes_no_model_later_either() -> None:
    with pytest.raises(UsageError, match="the strategy sampling has no plan role"):
        reconfigured(made(strategy="sampling"), {"plan_model": "exec:x"})


def test_another_model_does_not_keep_the_price_of_the_one_before() -> None:
    run = reconfigured(made(), {"price": "1/2"})

    changed = reconfigured(run, {"plan_model": "exec:another"}).config.models

    assert changed["plan"].price is None
    assert changed["code"].price == run.config.models["code"].price
