"""What people and programs are told of a run: texts, tables and the kernel's file, all read from stored facts.

Knows no terminal and no command line: `rich` renderables and plain data go out, and the caller prints them.
"""
