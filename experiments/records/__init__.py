"""Run folders: the only code that reads and writes what a run leaves on disk."""
