"""Draws the README's picture of a run: `stark show` of a recording, as an SVG.

Use: `python scripts/picture.py src/stark/demo/triton.json.gz docs/run.svg`
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from stark.recording import read_recording
from stark.report.run import run_text
from stark.report.view import RunView

COLUMNS = 118


def main(recording: Path, picture: Path) -> None:
    """Render and write."""
    console = Console(
        record=True,
        width=COLUMNS,
        file=io.StringIO(),
        force_terminal=True,
        markup=False,
        highlight=False,
    )
    console.print(run_text(RunView.of_recording(read_recording(recording)), COLUMNS))
    drawn = console.export_svg(title="stark show", theme=MONOKAI)
    picture.write_text(re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
