"""Evaluates the same candidates with KernelBench's own evaluation and with STARK's judge."""
