"""The regression set of prompts: recorded situations of each role, and checks of the replies."""
