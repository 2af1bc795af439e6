from __future__ import annotations

import ast
import json

import pytest

import loop_samples as samples
from stark.core.call import Message
from stark.core.errors import UsageError
from stark.core.run import RoleModel
from stark.replies import LiveReplies, plain
from stark.testing.model import ScriptedModel

QUESTION = (Message(speaker="user", text="Write a kernel."),)


async def test_each_role_asks_its_own_model_at_its_own_temperature() -> None:
    models = {role: ScriptedModel([f"I am {role}"]) for role in samples.TEMPERATURES}
    replies = samples.replies_of(models)

    for role, temperature in samples.TEMPERATURES.items():
        assert f"I am {role}" == (await replies.reply(1, 0, role, QUESTION)).text
        assert [(QUESTION, temperature)] == models[role].asked


async def test_models_are_opened_by_their_names() -> None:
    spec = RoleModel(model="exec:cat", temperature=None)
    replies = LiveReplies.open({"plan": spec, "code": spec})

    assert "Write a kernel." in (await replies.reply(1, 0, "code", QUESTION)).text


def test_a_model_that_cannot_be_opened_is_told_before_any_work() -> None:
    with pytest.raises(UsageError, match="unknown model"):
        LiveReplies.open({"plan": RoleModel(model="exec:cat"), "code": RoleModel(model="nobody:x")})


async def test_whatever_a_model_leaves_in_a_reply_it_can_be_parsed_sent_on_and_written() -> None:
    replies, _ = samples.scripted(lambda _: "one\r\ntwo\rthree = '\ud83d'\nfour \U0001f600")

    text = (await replies.reply(1, 0, "plan", QUESTION)).text

    assert "one\ntwo\nthree = '?'\nfour \U0001f600" == text
    assert text == json.loads(json.dumps(text, ensure_ascii=False).encode())
    assert ast.parse(text.partition("four")[0])


def test_honest_text_is_left_as_it_is() -> None:
    text = "\tµs \u2013 'é'\n\n\f\u2028x\n"

    assert text == plain(text)
