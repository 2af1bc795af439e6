"""STARK: a team of language-model agents that turns a PyTorch module into a faster, verified kernel.

The method is "STARK: Strategic Team of Agents for Refining Kernels" (arXiv 2510.16996).
`docs/architecture.md` says which package does what; nothing is imported here, so that
`import stark` stays instant and never needs torch.
"""

__version__ = "0.1.0"
