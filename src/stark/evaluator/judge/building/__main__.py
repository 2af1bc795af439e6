"""Starts a build service: `python -m stark.evaluator.judge.building SOCKET`.

Prints its toolchain as one line of JSON when it is ready, and ends when its standard input ends.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from pathlib import Path

from stark.core.errors import UsageError
from stark.evaluator.judge.building.cache import BuildCache
from stark.evaluator.judge.building.service import BuildService
from stark.evaluator.judge.building.toolchain import toolchain_of
from stark.evaluator.judge.processes.forkserver import Forkserver
from stark.languages import preloaded


def main() -> None:
    """Serve until nobody needs the service any more."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("socket", type=Path)
    parser.add_argument("--builds", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    options = parser.parse_args()
    try:
        cache = BuildCache.opened()
    except UsageError as error:
        sys.exit(str(error))
    forkserver, toolchain = Forkserver.start(preloaded()), toolchain_of(cache.root)
    forkserver.layers()  # answers when it has imported everything
    service = BuildService(options.socket, cache, toolchain, forkserver, options.builds)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    sys.stdout.write(toolchain.model_dump_json() + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    forkserver.close()
    os._exit(0)


if __name__ == "__main__":
    main()
