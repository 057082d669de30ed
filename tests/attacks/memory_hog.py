"""One process grows to 2 GB."""

blocks = []
for _ in range(100):
    blocks.append(bytearray(b"m") * (20 << 20))
print("ATE", len(blocks) * 20)
