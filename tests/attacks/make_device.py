"""Makes a node for the disk of the machine."""

import os
import stat

try:
    os.mknod("disk", 0o600 | stat.S_IFBLK, os.stat("/").st_dev or os.makedev(8, 0))
    print("DEVICE")
except OSError as error:
    print("stopped", error)
