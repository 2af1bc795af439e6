"""The untrusted processes: a forkserver that has imported torch, and children that each run a program.

A program is a candidate or the reference. This package imports only torch and the standard
library, so that a fork contains nothing of the judge. Only `triton_ahead` also imports Triton.
The judge, not this package, decides on verdicts and takes the times that count.
"""
