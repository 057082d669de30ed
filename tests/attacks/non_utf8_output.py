"""Every byte value, escape sequences and halves of surrogates."""

import os

os.write(1, bytes(range(256)) * 4 + b"\x00\xed\xa0\x80\x1b]0;title\x07\x1b[2J\r\n")
os.write(2, b"\xfe\xff" * 200)
with open("submission.csv", "w") as f:
    f.write("id,target\n1,0\n")
