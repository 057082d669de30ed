"""Where the repository and the tests' data are."""

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
DATA = TESTS / "data"
SUPPORT = TESTS / "support"
