"""Folders without any permission."""

import os

os.makedirs("a/b")
open("a/b/c", "w").close()
for folder in ("a/b", "a", "."):
    os.chmod(folder, 0)
