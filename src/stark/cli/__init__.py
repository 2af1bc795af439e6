"""The command line: parse, call, render. Strings become objects here and nowhere else."""
