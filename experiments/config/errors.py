"""What stops a run; every message says what to do next."""


class LoopError(RuntimeError):
    """The run cannot go on; what was recorded is safe and ``--resume`` goes on."""


class LedgerError(LoopError):
    """A record file cannot be read or written."""


class ReplayError(LoopError):
    """What was computed is not what the records hold."""


class Diverged(LoopError):
    """An update gave no finite number: this run is over, others need not be."""


class Stopped(LoopError):
    """Ctrl-C: attempts that were over are in the ledger, the others are not."""


class UsageError(Exception):
    """The command line, or a file it names, is wrong; the message says what to do."""
