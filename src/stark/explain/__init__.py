"""Evaluations, profiles and runs in English: the same words on screens, in prompts and in documents."""
