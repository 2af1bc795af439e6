"""The regression set of prompts: recorded situations of each role, and what must hold of what comes back."""
