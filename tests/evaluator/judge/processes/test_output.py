from __future__ import annotations

from stark.evaluator.judge.processes.output import printable


def test_what_a_terminal_would_obey_does_not_reach_it() -> None:
    said = "\x1b[2J\x1b[31mred\x1b[0m\r\n\tso far\rdone\x1b]0;title\x07\x08 é \x9b"

    assert "red\n\tso far\ndone\N{REPLACEMENT CHARACTER} é \N{REPLACEMENT CHARACTER}" == printable(
        said
    )
