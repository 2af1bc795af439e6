"""Every error that STARK raises on purpose.

A candidate that fails is not here: that is data (`core.evaluation`). These are failures of the
request or of our own machinery:

    StarkError                      exit code 1
      UsageError                    exit code 2: the request is wrong
        ProblemError                the problem file cannot be used
        RecordingError              a recording does not fit what is asked of it
      MachineError                  exit code 2: the machine lacks something
        JudgeUnavailable            no judge answers (it could not start, or keeps dying)
        StoreError                  the run store cannot be opened, read or written
          Held                      another process works on this run (a bench leaves the run to it)
      ModelError                    a language model could not be asked
        ModelRefused                exit code 2: no retry would help (key, address, name, request)
        PromptRefused               one conversation is too long for the model (its attempt fails)
        ModelUnreachable            retries are used up
      ReplyError                    a reply broke the rules of its role (one is sent back, then it counts)
      CompilerRefused               PyTorch's compiler makes no candidate of a problem (the run goes on without)
      JudgeDied                     the judge process ended in the middle of a request (retried)

Each carries one sentence that says what to do.
"""

from __future__ import annotations


class StarkError(Exception):
    """Base of all errors raised on purpose; its text is one sentence for a person."""

    exit_code = 1


class UsageError(StarkError):
    """The request cannot be carried out as written."""

    exit_code = 2


class ProblemError(UsageError):
    """A problem file cannot be used; says which line and what is wrong."""


class RecordingError(UsageError):
    """A recording is unreadable or does not fit the run that wants to follow it."""


class MachineError(StarkError):
    """The machine lacks something that the request needs."""

    exit_code = 2


class JudgeUnavailable(MachineError):
    """No judge answers: it could not be started, or died again and again."""


class StoreError(MachineError):
    """The run store cannot be opened, read or written."""


class Held(StoreError):
    """Another process works on what may have only one at a time."""


class ModelError(StarkError):
    """A language model could not be asked."""


class ModelRefused(ModelError):
    """The model will answer nothing as it is asked: wrong key, address, name or form of request."""

    exit_code = 2


class PromptRefused(ModelError):
    """The model will not answer this one conversation, which is too long for it; it would answer others."""


class ModelUnreachable(ModelError):
    """The model did not answer within its retries."""


class ReplyError(StarkError):
    """A model's reply breaks the rules of its role; the text is what the model is told."""


class CompilerRefused(StarkError):
    """PyTorch's compiler makes no candidate of a problem; says why."""


class JudgeDied(StarkError):
    """The judge process ended while it worked on a request; the request is sent again."""
