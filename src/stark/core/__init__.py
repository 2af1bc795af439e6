"""The domain model: frozen data classes that know no torch, no language model and no database."""
