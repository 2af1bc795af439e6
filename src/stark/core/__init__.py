"""The domain model: frozen data classes for problems, candidates, evaluations, runs and costs.

Knows no torch, no model, no database: everything here can be built by hand in a test.
"""
