"""Lifts its core limit and aborts."""

import os
import resource

try:
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_CORE, unlimited)
except (OSError, ValueError) as error:
    print("stopped", error)
os.abort()
