"""The work is done but a thread keeps the process alive."""

with open("submission.csv", "w") as f:
    f.write("id,target\n1,0\n")

import threading
import time

threading.Thread(target=time.sleep, args=(90,)).start()
