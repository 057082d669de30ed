"""Ignores every polite request to stop."""

import contextlib
import signal
import time

for name in ("TERM", "INT", "HUP", "ALRM", "QUIT", "XCPU", "USR1", "USR2", "PIPE"):
    signal.signal(getattr(signal, "SIG" + name), signal.SIG_IGN)
while True:
    with contextlib.suppress(BaseException):
        time.sleep(1)
