"""The untrusted process: a forkserver that holds torch ready, and the child that runs one program.

Imports torch and the standard library only, so that a fork carries nothing of the judge.
Knows no status, no oracle and no clock that anyone believes.
"""
