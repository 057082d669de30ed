"""Runnable studies; `python -m experiments` lists them."""
