"""Changes the limits of its parent."""

import os
import resource

for pid in {os.getppid(), 1}:
    try:
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
        print("LIMITED", pid)
    except OSError as error:
        print("stopped", error)
