"""`python -m stark.capturing package.module:Object --inputs package.module:example`: writes a module as a problem file.

Ends with 0, or with 2 and one sentence on standard error if the module cannot be captured.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from stark.capturing.entry import capture
from stark.capturing.loading import load_examples, load_module, record
from stark.core.errors import StarkError


def main(arguments: list[str] | None = None) -> int:
    """Capture one module; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m stark.capturing", description=__doc__)
    parser.add_argument("module", help="package.module:Object, an nn.Module or what makes one")
    parser.add_argument("--inputs", required=True, help="package.module:example, its arguments")
    parser.add_argument("--output", type=Path, help="the file to write; standard output otherwise")
    parser.add_argument("--name", help="the problem's name")
    parser.add_argument("--backward", action="store_true", help="verify and time with gradients")
    options = parser.parse_args(arguments)
    try:
        module = load_module(options.module)
        calls = record(module, load_examples(options.inputs), options.inputs, options.backward)
        problem = capture(module, calls, options.name, backward=options.backward)
        if options.output is None:
            sys.stdout.write(problem.source)
        else:
            options.output.write_text(problem.source, encoding="utf-8")
    except (StarkError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
