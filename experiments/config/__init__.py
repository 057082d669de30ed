"""What identifies a run: frozen dataclasses, without flags and without JAX."""
