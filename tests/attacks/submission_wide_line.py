"""Millions of columns and one endless line."""

with open("submission.csv", "w") as f:
    f.write("id" + ",c" * 1_000_000 + "\n" + "1" * (40 << 20))
