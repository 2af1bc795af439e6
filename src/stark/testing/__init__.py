"""Stand-ins and contract suites for tests, of STARK's own parts and of yours; imported by tests only."""
