"""Errors of reading and writing models."""


class CheckpointError(RuntimeError):
    """A checkpoint cannot be read or written; the message says what to do."""
