from __future__ import annotations

import socket
from dataclasses import replace

import pytest
from chat_server import ChatServer

from stark.models import PROVIDERS, Way, ways
from stark.models.catalog import CATALOG


def by_name() -> dict[str, Way]:
    return {way.name: way for way in ways()}


def put_vllm_at(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CATALOG, "vllm", replace(CATALOG["vllm"], address=address))


def test_every_provider_has_a_way() -> None:
    assert list(PROVIDERS) == list(by_name())


def test_a_provider_is_ready_once_its_key_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    before = by_name()["google"]
    monkeypatch.setenv("GEMINI_API_KEY", "the-secret")
    after = by_name()["google"]

    assert not before.ready
    assert "GOOGLE_API_KEY or GEMINI_API_KEY" in before.detail
    assert (True, "key in GEMINI_API_KEY") == (after.ready, after.detail)
    assert "the-secret" not in after.model_dump_json()


def test_a_damaged_key_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-séc\nret")

    openai = by_name()["openai"]

    assert not openai.ready
    assert "OPENAI_API_KEY contains characters that cannot be part of a key" in openai.detail


def test_a_server_is_ready_while_it_listens(
    chat_server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_vllm_at(chat_server.url, monkeypatch)
    assert (True, f"a server listens at {chat_server.url}") == (
        by_name()["vllm"].ready,
        by_name()["vllm"].detail,
    )
    assert [] == chat_server.requests

    chat_server.close()
    assert not by_name()["vllm"].ready


def test_a_server_that_never_accepts_costs_little_time(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = []

    def connect(address: tuple[str, int], timeout: float) -> socket.socket:
        waited.append(timeout)
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", connect)

    assert not by_name()["vllm"].ready
    assert {0.2} == set(waited)


def test_a_command_is_always_a_way() -> None:
    assert by_name()["exec"].ready
