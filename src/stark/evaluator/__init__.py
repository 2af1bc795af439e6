"""Evaluates candidates: the judge, the sandboxed candidate process, and the executors."""
