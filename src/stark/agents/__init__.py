"""Agents: the roles that plan, write and repair candidates, from prompt to parsed reply.

They read the tree and ask models, and depend on no search policy, judge or store.
"""
