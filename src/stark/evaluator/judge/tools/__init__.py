"""Runs a correct candidate by itself under NVIDIA's tools: a profiler for kernels, a memory
checker.
"""
