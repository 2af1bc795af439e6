from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
