"""The words of the project as frozen data: what is asked, tried, measured and paid.

Knows no torch, no model, no database: everything here can be built by hand in a test.
"""
