"""What keeps model-written code in its place: one module per layer, and which of them a machine offers.

Needs the standard library and a Linux kernel only: `stark doctor` asks here without torch. Each layer
is proved by an attempt to escape in `tests/evaluator/test_sandbox.py`.
"""
