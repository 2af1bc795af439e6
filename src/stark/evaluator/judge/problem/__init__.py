"""What is known of a problem: its module, its inputs and what makes them hard, its exact results, its least time."""
