"""Whole models with random weights, and their throughput with kernels put back."""
