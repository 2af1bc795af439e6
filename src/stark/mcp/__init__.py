"""An MCP server: a coding agent's tools for measuring problems, judging candidates and reading runs.

`server.py` declares the tools and resources, `workbench.py` does the work, `jobs.py` bounds how long a call may take, and
`answers.py` defines what the tools return. Only this package imports the protocol's library.
"""
