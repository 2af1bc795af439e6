"""Puts kernels into live models, and exports and verifies packages of kernels.

`forms.py` and `guard.py` are also copied into kernel files and packages, so they need only torch and the standard
library. The other modules import no torch.
"""
