from __future__ import annotations

import pytest

from stark.evaluator.candidate.sandbox import kernel, layers


def test_what_is_left_out_takes_along_what_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(layers.WITHOUT, "network, seccomp")

    found = layers.offered()

    assert f"left out by {layers.WITHOUT}" == found["network"] == found["seccomp"]
    for layer in ("processes", "proc", "tasks", "mounts"):
        assert found[layer] is not None
    assert found["limits"] is None


def test_a_name_that_is_no_layer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(layers.WITHOUT, "firewall")

    with pytest.raises(ValueError, match="unknown layers: firewall; choose from limits, "):
        layers.offered()


def test_where_no_process_can_be_confined_no_layer_counts_as_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(layers, "_tried", lambda _: "there are too many processes")

    with pytest.raises(RuntimeError, match="confined here: there are too many processes"):
        layers.offered()


@pytest.mark.parametrize(
    ("release", "user", "bounded"),
    [((6, 14), 0, True), ((6, 13), 0, False), ((6, 13), 1000, True), ((5, 13), 1000, False)],
)
def test_processes_are_bounded_where_the_kernel_counts_them(
    release: tuple[int, int], user: int, bounded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "release", lambda: release)
    monkeypatch.setattr("os.getuid", lambda: user)
    monkeypatch.setattr(layers, "_tried", lambda _: None)

    assert bounded == (layers.offered()["tasks"] is None)


@pytest.mark.parametrize(
    ("active", "gaps"),
    [
        ({"landlock", "seccomp", "mounts"}, 0),
        ({"landlock", "seccomp"}, 1),
        ({"network", "processes", "mounts"}, 1),
        ({"landlock"}, 3),
        ({"limits"}, 5),
    ],
)
def test_gaps_are_what_no_layer_closes(active: set[str], gaps: int) -> None:
    assert gaps == len(layers.gaps(active))
