"""The programs that the judge runs: started, watched, stopped, read and ended."""
