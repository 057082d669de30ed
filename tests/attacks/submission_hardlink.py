"""A hard link to a file of the host."""

import os

paths = (os.environ["A_PRIVATE"], os.environ["A_INPUT"] + "/test.csv")
for path in (*paths, "input/test.csv", "/etc/passwd"):
    try:
        os.link(path, "submission.csv")
        print("linked", path)
        break
    except OSError as error:
        print("stopped", error)
