"""Not text: zero bytes, a byte order mark, lone carriage returns."""

with open("submission.csv", "wb") as f:
    f.write(b"\xff\xfei\x00d\x00,\x00\r\r\x00" + bytes(range(256)))
