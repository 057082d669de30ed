"""Writes where a sandbox may have forgotten to set a size."""

import os

for folder in ("/", "/dev", "/run", "/sandbox", "/var", "/etc", "/usr", "/opt"):
    path = os.path.join(folder, "sbx-" + os.environ["A_MARK"])
    try:
        with open(path, "wb") as f:
            f.write(bytes(1 << 20))
        print("WROTE", path)
        os.unlink(path)
    except OSError as error:
        print("stopped", error)
