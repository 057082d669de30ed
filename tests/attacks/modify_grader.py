"""Edits the grader, the answers and the inputs."""

import os

inputs = os.environ["A_INPUT"]
names = [os.environ["A_GRADER"], os.environ["A_PRIVATE"], f"{inputs}/train.csv"]
names += ["input/train.csv", "input/test.csv"]
for path in names:
    try:
        os.chmod(path, 0o666)
        with open(path, "a") as f:
            f.write("tampered\n")
        print("changed", path)
    except OSError as error:
        print("stopped", error)
for folder in (inputs, "input"):
    try:
        os.rename(f"{folder}/test.csv", f"{folder}/gone.csv")
    except OSError as error:
        print("stopped", error)
