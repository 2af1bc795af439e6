"""The page: what the store knows, in a browser. `server.py` serves it while runs go on; `file.py` writes one file of it.

Everything is rendered from documents of `stark.report` and `stark.benches` by the modules in `static/`, which need no
network. Texts of candidates and models are hostile: the modules write them as text only, never as markup.
"""
