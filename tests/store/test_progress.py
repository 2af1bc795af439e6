"""What a reader sees of a store that others write to."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import store_samples as samples

from stark.core.errors import StoreError
from stark.core.evaluation import Incorrect
from stark.core.node import Selection
from stark.core.run import Ended
from stark.core.usage import Cost
from stark.store import Store

RUN = samples.run().id


def test_every_visible_change_changes_the_progress(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/stark.db"
    with Store.open(url) as written:
        read = Store.open_existing(url, busy_s=1.0)
        assert read is not None
        seen, stamps = [read.progress()], [read.stamp()]
        asked = 0

        def ask() -> None:
            nonlocal asked
            asked = written.begin_call(RUN, 1, "plan", "m", Cost())

        for change in (
            lambda: written.create_run(samples.run()),
            lambda: written.begin_attempt(RUN, 1, Selection(parent=0, action="improve")),
            ask,
            lambda: written.settle_call(RUN, asked, "refused"),
            lambda: written.add_node(RUN, samples.node(1), elapsed_s=1.0),
            lambda: written.add_promotion(RUN, 1, Incorrect(error="sometimes wrong")),
            lambda: written.end_run(RUN, Ended(kind="attempts", detail="1 attempt made")),
        ):
            change()
            seen.append(read.progress())
            stamps.append(read.stamp())
        read.close()
    assert all(before != after for before, after in pairwise(seen))
    assert len(stamps) == len({str(each) for each in stamps})


def test_steps_say_where_unfinished_attempts_are(store: Store) -> None:
    store.create_run(samples.run())
    for attempt in (1, 2, 3):
        store.begin_attempt(RUN, attempt, Selection(parent=0, action="improve"))
    assert {1: "waiting", 2: "waiting", 3: "waiting"} == store.steps(RUN)
    store.begin_call(RUN, 1, "plan", "m", Cost())
    asked = store.begin_call(RUN, 2, "code", "m", Cost())
    store.add_call(RUN, samples.call(2, 0), asked, elapsed_s=1.0)
    store.add_node(RUN, samples.node(3), elapsed_s=2.0)

    assert {1: "plan", 2: "judge"} == store.steps(RUN)
    assert {3: 2.0} == store.finished_s(RUN)
    assert samples.node(3) == store.node(RUN, 3)
    assert store.node(RUN, 1) is None
    assert [3] == store.children(RUN, 0)
    assert [samples.node(3)] == list(store.each_node(RUN, [3]))


def test_a_reader_writes_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/stark.db"
    assert Store.open_existing(url, busy_s=1.0) is None
    Store.open(url).close()
    read = Store.open_existing(url, busy_s=1.0)
    assert read is not None
    try:
        read.create_run(samples.run())
    except StoreError as error:
        assert "readonly" in str(error)
    else:
        raise AssertionError("it was written to")
    finally:
        read.close()
