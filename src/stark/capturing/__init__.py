"""The way in: records how a model's modules are called, and captures one of them as a problem."""

from __future__ import annotations

from stark.capturing.entry import capture as capture
from stark.capturing.recording import Calls as Calls
from stark.capturing.recording import Form as Form
from stark.capturing.recording import recording as recording

__all__ = ["Calls", "Form", "capture", "recording"]
