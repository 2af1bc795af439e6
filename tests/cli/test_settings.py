from __future__ import annotations

from pathlib import Path

import pytest

from stark.cli.settings import Settings, load_settings
from stark.core.errors import UsageError


def count_fields(model: type) -> int:
    """Leaves of the settings' tree."""
    inner = [field.annotation for field in model.model_fields.values()]
    return sum(count_fields(kind) if hasattr(kind, "model_fields") else 1 for kind in inner)


def test_flags_win_over_environment_and_environment_over_file(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workplace / "stark.toml").write_text(
        'model = "exec:file"\nstrategy = "file"\nlanguage = "file"\n[models]\nplan = "exec:plan"\n'
    )
    monkeypatch.setenv("STARK_MODEL", "exec:environment")
    monkeypatch.setenv("STARK_STRATEGY", "environment")

    settings = load_settings({"model": "exec:flag", "models": {"plan": None}, "executor": None})

    assert "exec:flag" == settings.model
    assert "environment" == settings.strategy
    assert "file" == settings.language
    assert "exec:plan" == settings.models.plan
    assert "local" == settings.executor


def test_nested_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARK_BUDGET_ATTEMPTS", "7")
    monkeypatch.setenv("STARK_MODELS_DEBUG", "exec:debug")
    monkeypatch.setenv("STARK_LIMITS_BUILD_S", "9")
    monkeypatch.setenv("STARK_CACHE", "/somewhere")

    settings = load_settings({"budget": {"attempts": None, "tokens": 5}})

    assert (7, 5) == (settings.budget.attempts, settings.budget.tokens)
    assert "exec:debug" == settings.models.debug
    assert 9.0 == settings.limits.build_s


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("budgets = 3", "stark.toml sets budgets, which is no setting"),
        ("[budget]\nattempts = 0", "budget.attempts in stark.toml is 0"),
        ("[budget]\nattemps = 3", "stark.toml sets budget.attemps, which is no setting"),
        ("[budget", "stark.toml is no TOML file"),
        (
            "budget = 3",
            r"budget in stark.toml is 3, and should be a table, \[budget\] in stark.toml, with attempts, tokens, dollars or minutes$",
        ),
    ],
)
def test_a_fault_in_the_file_is_named(workplace: Path, text: str, said: str) -> None:
    (workplace / "stark.toml").write_text(text)

    with pytest.raises(UsageError, match=said):
        load_settings({})


def test_a_file_that_is_no_text_or_no_file_is_named(workplace: Path) -> None:
    path = workplace / "stark.toml"
    path.write_bytes(b'model = "\xff"')
    with pytest.raises(UsageError, match=r"stark\.toml is no TOML file: 'utf-8' codec"):
        load_settings({})

    path.unlink()
    path.mkdir()
    with pytest.raises(UsageError, match=r"stark\.toml is a folder, and should be a file"):
        load_settings({})


def test_a_fault_in_the_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARK_BUDGET_MINUTES", "soon")

    with pytest.raises(UsageError, match="STARK_BUDGET_MINUTES in the environment is 'soon'"):
        load_settings({})


def test_a_fault_in_a_flag_is_named() -> None:
    with pytest.raises(UsageError, match="--minutes is 0"):
        load_settings({"budget": {"minutes": 0}})


def test_there_are_at_most_twenty() -> None:
    assert count_fields(Settings) <= 20
