"""The sandbox around model-written code: its layers, and a test of which layers a machine offers.

Needs only the standard library and Linux, because `stark doctor` uses it without torch.
`tests/evaluator/test_sandbox.py` tries to escape from every layer.
"""
