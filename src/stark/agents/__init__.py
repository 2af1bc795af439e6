"""The team that writes candidates: each role turns what the tree knows into a prompt, and a reply into a result.

Knows no search policy, no judge and no store: it reads the tree and asks models, nothing else.
"""
