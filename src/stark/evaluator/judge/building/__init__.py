"""From a candidate's source to what can be run, and what compilers said about it."""
