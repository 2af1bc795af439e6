"""Some of the shipped recordings as a store."""

from __future__ import annotations

import pytest
from page_samples import RESULTS

from stark.recorded import keep, read_recording
from stark.store import Store


@pytest.fixture(scope="package")
def recorded_store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a store with some shipped recordings: from a CPU and a GPU, with a rejected attempt."""
    address = f"sqlite:///{tmp_path_factory.mktemp('page')}/stark.db"
    with Store.open(address) as store:
        for path in RESULTS.rglob("*.json.gz"):
            if not path.name.startswith(
                ("level1-36", "depthwise-hardswish-stark", "rmsnorm-swiglu-s")
            ):
                continue
            keep(read_recording(path), store)
    return address
