"""Reports on a run: `rich` texts and tables, JSON documents and the kernel file, for the caller to print or write."""
