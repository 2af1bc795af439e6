"""Says in JSON which layers this machine offers: `python -m stark.evaluator.candidate.sandbox`."""

from __future__ import annotations

import json
import sys

from stark.evaluator.candidate.sandbox.layers import offered

if __name__ == "__main__":
    sys.stdout.write(json.dumps(offered()) + "\n")
