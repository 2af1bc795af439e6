"""Search: the tree of attempts, its leaderboard, and the policies that choose where the next attempt starts.

Imports no model, prompt or GPU code, so that tests need only made-up evaluations.
"""
