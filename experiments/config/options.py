"""Options of a command line as checked values."""

from collections.abc import Sequence

from experiments.config.errors import UsageError


def choices(name: str, values: Sequence[str], allowed: Sequence[str]) -> list[str]:
    """Checks a comma-separated list flag against the allowed names; 'all' is all.

    Raises:
      UsageError: an entry is not allowed; the message lists what is.
    """
    if list(values) == ["all"]:
        return list(allowed)
    for value in values:
        if value not in allowed:
            raise UsageError(
                f"--{name}={value}: choose from {', '.join(allowed)} or all"
            )
    if not values:
        raise UsageError(f"--{name} is empty")
    return list(dict.fromkeys(values))
