"""Puts kernels into live models, and exports and verifies packages of kernels.

`guard.py` and the files that it imports are also copied into kernel files and packages (`embedded.py`), so they need only
torch and the standard library. Of the other modules, `apply.py` alone imports torch.
"""
