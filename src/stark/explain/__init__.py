"""Evaluations, profiles and runs in English: the same words on screens, in prompts and in documents.

Plain text only: nothing here knows a terminal, a prompt or a store.
"""
