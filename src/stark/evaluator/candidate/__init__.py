"""The untrusted processes: a forkserver that has imported torch, and the child that runs a program.

This package imports only torch and the standard library, so that a fork contains nothing of the
judge. The exception is `triton_ahead`, which imports Triton. The package decides nothing: verdicts
and the clocks that count are in the judge.
"""
