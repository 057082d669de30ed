"""The exit code of a SIGKILL without any signal."""

import sys

sys.exit(137)
