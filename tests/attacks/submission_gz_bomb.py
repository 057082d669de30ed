"""Compressed bombs under names that a reader might infer."""

import gzip
import zipfile

block = bytes(1 << 20)
with gzip.open("submission.csv.gz", "wb", compresslevel=1) as f:
    for _ in range(100):
        f.write(block)
with zipfile.ZipFile("submission.zip", "w", zipfile.ZIP_DEFLATED) as archive:
    archive.writestr("submission.csv", block * 20)
