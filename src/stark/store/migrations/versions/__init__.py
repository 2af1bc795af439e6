"""One file per revision; a published one is never edited."""
