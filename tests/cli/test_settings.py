from __future__ import annotations

from pathlib import Path

import pytest

from stark.cli.settings import load_settings
from stark.configuration import configure, open_judge
from stark.core.errors import UsageError
from stark.options import RunOptions, checked_options


def test_flags_win_over_environment_and_environment_over_file(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workplace / "stark.toml").write_text(
        'model = "exec:file"\nstrategy = "file"\nlanguage = "file"\nplan_model = "exec:plan"\n'
        'store = "sqlite:///file.db"\nkernelbench = "file"\n'
    )
    monkeypatch.setenv("STARK_MODEL", "exec:environment")
    monkeypatch.setenv("STARK_STRATEGY", "environment")
    monkeypatch.setenv("STARK_KERNELBENCH", "environment")

    settings = load_settings(model="exec:flag", store="sqlite:///flag.db")

    assert {
        "model": "exec:flag",
        "strategy": "environment",
        "language": "file",
        "plan_model": "exec:plan",
    } == settings.options
    assert ("sqlite:///flag.db", Path("environment")) == (settings.store, settings.kernelbench)


WRITTEN = {
    name: str(value)
    for name, value in RunOptions(
        **dict.fromkeys(("model", "plan_model", "code_model", "debug_model"), "exec:x"),
        tokens=9,
        dollars=2.5,
        minutes=3,
        language="cpp",
        sanitizer=True,
        seed=0,
    )
    if name != "price"
} | {"price": "3/15"}


def test_every_option_can_be_set_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(RunOptions.model_fields) == set(WRITTEN)
    for name, value in WRITTEN.items():
        monkeypatch.setenv(f"STARK_{name.upper()}", value)

    assert checked_options(WRITTEN) == checked_options(load_settings().options)


def test_every_option_is_a_key_of_the_file(workplace: Path) -> None:
    lines = [
        f"{name} = {value.lower() if value in ('True', 'False') or (value[0].isdigit() and '/' not in value) else repr(value)}"
        for name, value in WRITTEN.items()
    ]
    (workplace / "stark.toml").write_text("\n".join(lines))

    assert checked_options(WRITTEN) == checked_options(load_settings().options)


def test_what_is_not_set_is_left_to_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARK_MODEL", "")
    monkeypatch.setenv("STARK_CACHE", "/somewhere")

    assert {} == load_settings().options


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("budgets = 3", "stark.toml sets budgets, which is not a setting"),
        ("[budget]\nattempts = 0", "stark.toml sets budget, which is not a setting"),
        ("attempts = 0", "attempts in stark.toml is 0, and should be greater than or equal to 1"),
        ('attempts = "many"', "attempts in stark.toml is 'many', and should be a valid integer"),
        ('stop = "never"', "stop in stark.toml is 'never', and should be 'budget' or 'auto'"),
        ('price = "cheap"', "price in stark.toml is 'cheap', and should be written INPUT/OUTPUT"),
        ("[budget", "stark.toml is not a TOML file"),
    ],
)
def test_a_fault_in_the_file_is_named(workplace: Path, text: str, said: str) -> None:
    (workplace / "stark.toml").write_text(text)

    with pytest.raises(UsageError, match=said):
        load_settings()


def test_a_file_that_is_no_text_or_no_file_is_named(workplace: Path) -> None:
    path = workplace / "stark.toml"
    path.write_bytes(b'model = "\xff"')
    with pytest.raises(UsageError, match=r"stark\.toml is not a TOML file: 'utf-8' codec"):
        load_settings()

    path.unlink()
    path.mkdir()
    with pytest.raises(UsageError, match=r"stark\.toml is a folder, and should be a file"):
        load_settings()


def test_a_fault_in_the_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARK_MINUTES", "soon")
    with pytest.raises(UsageError, match="STARK_MINUTES in the environment is 'soon'"):
        load_settings()
    monkeypatch.setenv("STARK_MINUTES", "5")
    monkeypatch.setenv("STARK_PRICE", "3")
    with pytest.raises(UsageError, match="STARK_PRICE in the environment is '3'"):
        load_settings()


def test_a_fault_in_a_flag_is_named() -> None:
    with pytest.raises(UsageError, match="--build-s is 0, and should be greater than 0"):
        load_settings(build_s=0)


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("H100", ("H100",)),
        ("H100,H200", ("H100", "H200")),
        ("H100, H200", ("H100", "H200")),
        (["H100", "H200"], ("H100", "H200")),
        (
            "Xeon, 2 cores; torch 2.13.0,Xeon, 1 cores",
            ("Xeon, 2 cores; torch 2.13.0", "Xeon, 1 cores"),
        ),
        (None, None),
    ],
)
def test_device_classes_are_written_with_commas_but_a_name_may_have_one(
    written: object, found: tuple[str, ...] | None
) -> None:
    assert found == checked_options({"device_class": written}).device_class


@pytest.mark.parametrize("written", ["H100,", "H100,H100", ["H100", ""]])
def test_device_classes_that_are_missing_or_the_same_are_refused(written: object) -> None:
    with pytest.raises(UsageError, match=r"device_class is .* should be parts of the names of"):
        checked_options({"device_class": written})


def test_device_classes_are_a_list_in_the_file(workplace: Path) -> None:
    (workplace / "stark.toml").write_text('device_class = ["H100", "H200"]\n')
    config = configure(checked_options({**load_settings().options, "model": "exec:x"}))

    assert ("H100", ("H200",)) == (config.device_class, config.other_classes)


def test_only_a_run_takes_several_device_classes() -> None:
    with pytest.raises(UsageError, match="only a run judges on several kinds of machines"):
        open_judge(checked_options({"device_class": "H100,H200"}))
