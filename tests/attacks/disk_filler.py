"""One large file, then many."""

written = 0
try:
    with open("large.bin", "wb", buffering=0) as f:
        for _ in range(60):
            written += f.write(bytes(10 << 20))
except OSError as error:
    print("stopped", error)
try:
    for i in range(300):
        with open(f"small{i}.bin", "wb") as f:
            written += f.write(bytes(1 << 20))
except OSError as error:
    print("stopped", error)
print("WROTE", written >> 20)
