"""Compiles CuTe DSL candidates on a machine without a GPU.

`python cute_without_gpu.py FOLDER` imports every `NAME.py` in the folder, and prints as JSON, by name, the PTX of what
each compiled meanwhile. The environment says what to compile for.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

FOLDER = Path(sys.argv[1])


def compiled(path: Path) -> str:
    """The PTX of the kernels that a file compiles when it is imported."""
    kept = FOLDER / "ptx"
    kept.mkdir(exist_ok=True)
    os.chdir(kept)
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    texts = [found.read_text() for found in kept.glob("*.ptx")]
    for found in kept.iterdir():
        found.unlink()
    return "\n".join(texts)


sys.stdout.write(json.dumps({path.stem: compiled(path) for path in sorted(FOLDER.glob("*.py"))}))
