"""Changes the interpreter's packages for later scripts."""

import os
import sys

for folder in {os.path.dirname(os.__file__), *sys.path}:
    path = os.path.join(folder, "sbx_poison_" + os.environ["A_MARK"][-8:] + ".txt")
    if not os.path.isdir(folder) or os.path.samefile(folder, "."):
        continue
    try:
        with open(path, "w") as f:
            f.write("x")
        os.unlink(path)
        print("POISONED", folder)
    except OSError as error:
        print("stopped", error)
