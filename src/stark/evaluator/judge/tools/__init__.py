"""Runs a correct candidate by itself under NVIDIA's tools: a profiler and a memory checker."""
