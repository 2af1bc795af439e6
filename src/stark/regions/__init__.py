"""Ranks the regions of a model by the time that a faster kernel could save: `stark.hotspots` and `stark hotspots`.

`finding` is the entry. `results`, `table`, `cut` and `paths` import no torch, so that the command line can use
them; the others run the user's model and import torch.
"""
