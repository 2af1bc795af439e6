"""Prints as JSON which sandbox layers this machine offers: `python -m stark.evaluator.candidate.sandbox`."""

from __future__ import annotations

import json
import sys

from stark.evaluator.candidate.sandbox.layers import offered

if __name__ == "__main__":
    try:
        sys.stdout.write(json.dumps(offered()) + "\n")
    except ValueError as error:  # the user's STARK_SANDBOX_WITHOUT is invalid
        sys.exit(str(error))
