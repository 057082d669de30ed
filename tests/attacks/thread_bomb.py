"""400 threads in one process."""

import threading
import time

threads = []
try:
    for _ in range(400):
        threads.append(threading.Thread(target=time.sleep, args=(1,), daemon=True))
        threads[-1].start()
except RuntimeError as error:
    print("stopped", error)
    threads.pop()
print("THREADS", len(threads))
