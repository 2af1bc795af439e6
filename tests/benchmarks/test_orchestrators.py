from __future__ import annotations

import pytest
from orchestrators import measure

from support.postgres import Server


@pytest.mark.slow
def test_processes_that_write_many_runs_to_one_server_at_once_store_what_one_alone_does(
    postgres: Server,
) -> None:
    _, wrong = measure(postgres.url(), processes=2, runs=5, attempts=3)

    assert [] == wrong
