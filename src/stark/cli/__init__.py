"""The command line: parses arguments, calls the library, renders results. Only here do strings become objects."""
