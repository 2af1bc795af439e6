"""Many runs side by side: which problems, which strategies, how they are driven, and what the numbers are.

A bench is a grid of ordinary runs, so everything that works on a run works on each of them. Its
report is made from the store alone.
"""
