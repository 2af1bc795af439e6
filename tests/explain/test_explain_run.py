from __future__ import annotations

from stark.core.usage import Usage
from stark.explain.run import price, tokens


def test_what_is_unknown_is_said_to_be_unknown() -> None:
    unknown = Usage(calls=1, input_tokens=None, output_tokens=3, dollars=None)

    assert ("price unknown", "tokens unknown") == (price(unknown), tokens(unknown))
