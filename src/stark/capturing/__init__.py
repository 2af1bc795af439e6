"""The way in: records how a model's modules are called, and captures one of them as a problem."""

from __future__ import annotations

from stark.capturing.calls.recording import Calls as Calls
from stark.capturing.calls.recording import Form as Form
from stark.capturing.calls.recording import recording as recording
from stark.capturing.entry import capture as capture

__all__ = ["Calls", "Form", "capture", "recording"]
