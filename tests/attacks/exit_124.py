"""The exit code of timeout(1) without any timeout."""

import sys

sys.exit(124)
