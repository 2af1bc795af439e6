"""The processes that the judge runs: started, watched, stopped, read and killed."""
