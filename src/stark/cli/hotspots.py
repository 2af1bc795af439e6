"""`stark hotspots`: where a model spends its time."""

from __future__ import annotations

from stark.cli import consoles
from stark.cli.own_model import asked_model
from stark.regions.table import table_text


def hotspots(
    model: str, inputs: str | None, top: int, compiling: bool, backward: bool, as_json: bool
) -> int:
    """Rank the regions and print the `top` best; returns the exit code."""
    more = ["--compile", str(top if compiling else 0), *(["--backward"] if backward else [])]
    found = asked_model("find", model, inputs, more).hotspots
    assert found is not None
    if as_json:
        best = found.model_copy(update={"regions": found.regions[:top]})
        consoles.print_json(best)
    else:
        consoles.write(f"{table_text(found, top)}\n")
    return 0
