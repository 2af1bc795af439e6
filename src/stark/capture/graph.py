"""Captures a module by its exported graph, where its source does not do."""
from __future__ import annotations
from stark.capture.cannot import CannotCapture
def exported(module, form):
    import torch
    from stark.capture.values import copied
    args, kwargs = copied(form.example)
    with torch.no_grad():
        return torch.export.export(module, args, kwargs, strict=False)
def by_graph(module, binding, form, reason):
    raise CannotCapture("not yet")
