"""A plain exit code."""

import sys

sys.exit(3)
