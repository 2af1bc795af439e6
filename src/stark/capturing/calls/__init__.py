"""The recorded calls: how they are noted, repeated, observed, and divided into cases."""
