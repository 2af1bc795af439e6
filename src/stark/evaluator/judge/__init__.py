"""The judge: the trusted process that owns inputs, expected values, the clock and the verdict.

It never imports a candidate.
"""
