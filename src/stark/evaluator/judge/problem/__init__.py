"""Loads a problem: its module, inputs, input regimes, float64 results, roofline and variants."""
