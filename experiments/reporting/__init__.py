"""Curves and tables, read from the records of runs and from nothing else."""
