from __future__ import annotations

from pathlib import Path

import pytest

from stark.cli import requests
from stark.cli.requests import (
    device_kind,
    kernel_path,
    new_id,
    refuse_unused_models,
    role_models,
    store_folder,
)
from stark.cli.settings import load_settings
from stark.core.errors import UsageError
from stark.core.problem import Problem
from stark.strategies import strategy


def test_an_id_is_the_problems_name_and_four_digits() -> None:
    problem = Problem(name="level1/23_Softmax", source="")

    assert "23-softmax" == new_id(problem, ())[:-5]


def test_an_id_that_is_taken_is_not_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    digits = iter(["0000", "0000", "0001"])
    monkeypatch.setattr(requests.secrets, "token_hex", lambda _: next(digits))

    assert "relu-0001" == new_id(Problem(name="relu", source=""), {"relu-0000"})


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


@pytest.mark.parametrize(
    ("store", "path"),
    [
        ("sqlite:///.stark/stark.db", ".stark/kernels/relu_12ab.py"),
        ("sqlite:////data/runs.db", "/data/kernels/relu_12ab.py"),
        ("sqlite:///:memory:", ".stark/kernels/relu_12ab.py"),
        ("postgresql+psycopg://box/stark", ".stark/kernels/relu_12ab.py"),
    ],
)
def test_kernels_lie_beside_the_store(store: str, path: str) -> None:
    assert Path(path) == kernel_path(store, "relu-12ab")


def test_a_kernels_file_can_be_imported() -> None:
    path = kernel_path("sqlite:///.stark/stark.db", "23-softmax-stark:ucb-1-c643")

    assert "kernel_23_softmax_stark_ucb_1_c643" == path.stem
    assert path.stem.isidentifier()


@pytest.mark.parametrize(
    ("store", "folder"),
    [
        ("sqlite:///runs.db", "."),
        ("sqlite:////data/runs.db?timeout=5&note=a/b", "/data"),
        ("sqlite://", None),
        ("sqlite:///", None),
        ("sqlite:///:memory:", None),
        ("sqlite:///file::memory:", None),
        ("postgresql+psycopg://box/stark", None),
    ],
)
def test_where_a_store_lies(store: str, folder: str | None) -> None:
    assert (None if folder is None else Path(folder)) == store_folder(store)


def test_roles_have_the_papers_temperatures_and_their_own_models() -> None:
    settings = load_settings({"model": "exec:all", "models": {"debug": "exec:debug"}})

    models = role_models(settings, ("plan", "code", "debug"))

    assert {"plan": 0.8, "code": 0.1, "debug": 0.1} == {
        role: entry.temperature for role, entry in models.items()
    }
    assert ["exec:all", "exec:all", "exec:debug"] == [entry.model for entry in models.values()]


def test_a_role_that_no_strategy_has_takes_no_model() -> None:
    refuse_unused_models({"plan": "exec:plan", "code": None}, ["sampling", "team-only"])
    refuse_unused_models({"plan": None}, ["sampling"])

    with pytest.raises(UsageError) as told:
        refuse_unused_models({"plan": "exec:plan"}, ["sampling"])
    assert "strategy sampling has no plan role; leave out --plan-model" == str(told.value)
    with pytest.raises(UsageError) as told:
        refuse_unused_models({"plan": "a:b", "debug": "a:b"}, ["sampling", "reflexion"])
    assert (
        "the strategies sampling, reflexion have no plan or debug role; leave out --plan-model, --debug-model"
    ) == str(told.value)


def test_a_run_keeps_the_policy_that_was_chosen() -> None:
    """By its name, so that `stark resume` finds the same search."""
    settings = load_settings(
        {"model": "exec:all", "strategy": "stark:epsilon-greedy", "executor": "local:cpu"}
    )

    run, chosen = requests.new_run(Problem(name="relu", source=""), settings, 1, ())

    assert "stark:epsilon-greedy" == run.config.strategy
    assert chosen == strategy(run.config.strategy)
    assert "epsilon-greedy" == chosen.policy.name
