"""A sparse file of 10 GB."""

try:
    with open("submission.csv", "wb") as f:
        f.write(b"id,target\n")
        f.truncate(10 << 30)
except OSError as error:
    print("stopped", error)
