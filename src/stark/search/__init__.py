"""Where the next attempt starts: the tree of attempts, its leaderboard and the policies.

Knows no model, no prompt and no GPU: everything here runs on invented evaluations.
"""
