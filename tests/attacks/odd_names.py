"""Names that are not text, hold newlines, or fill 255 bytes."""

import os

os.mkdir(b"\xff\xfe")
for name in (
    b"\xff\xfe/\x80\n\x1b[31m",
    b"-rf",
    b"a\nb",
    b"n" * 255,
    b"submission.csv",
):
    open(name, "w").close()
