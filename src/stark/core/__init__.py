"""The domain model: frozen data classes that depend on no torch, no language model and no database."""
