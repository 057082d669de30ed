"""A folder."""

import os

os.mkdir("submission.csv")
