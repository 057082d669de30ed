"""What can go wrong outside the script: one type per kind of remedy."""


class SandboxError(RuntimeError):
    """The sandbox itself failed; the script is not to blame and earns no reward."""


class IsolationError(SandboxError):
    """This machine cannot give the level that was asked for; the text says why."""
