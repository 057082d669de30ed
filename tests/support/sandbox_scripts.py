"""Fifty small programs that any sandbox runs: what honest scripts take for granted.

Each ends with exit code 0 where it works. The first line of some names the modules that
it needs (``# needs: torch``).
"""

import importlib.util
import json
import sys

_MP = "import multiprocessing as mp\ndef square(x): return x * x\n"
_MAIN = "if __name__ == '__main__':\n    "
_DATA = """
import numpy as np
rng = np.random.default_rng(0)
x = rng.normal(size=(300, 5))
y = (x[:, 0] + x[:, 1] > 0).astype(int)
"""
_SK = "# needs: sklearn\n" + _DATA
_LGB = "# needs: lightgbm\n" + _DATA + "import lightgbm as lgb\n"

SCRIPTS = {
    # --- the standard library
    "getpass": "import getpass; assert getpass.getuser()",
    "pwd": "import os, pwd; assert pwd.getpwuid(os.getuid()).pw_name",
    "grp": "import grp, os; assert grp.getgrgid(os.getgid()).gr_name",
    "home": "import pathlib; (pathlib.Path.home() / 'note').write_text('x')",
    "cache_folder": """
import os, pathlib
folder = pathlib.Path(os.path.expanduser("~/.cache/tool"))
folder.mkdir(parents=True); (folder / "x").write_text("1")
""",
    "locale": """
import locale, sys
locale.setlocale(locale.LC_ALL, "")
assert locale.getpreferredencoding().upper() == "UTF-8", locale.getpreferredencoding()
assert sys.getfilesystemencoding() == "utf-8"
open("grüße.txt", "w").write("ß"); assert open("grüße.txt").read() == "ß"
""",
    "time_zone": """
import datetime, time, zoneinfo
time.tzset(); assert time.strftime("%Z") == "UTC"
try: datetime.datetime.now(zoneinfo.ZoneInfo("Europe/Berlin"))
except zoneinfo.ZoneInfoNotFoundError: pass
""",
    "temp_folder": """
import os, tempfile
with tempfile.TemporaryDirectory() as folder:
    assert os.stat(folder).st_mode & 0o777 == 0o700
    open(os.path.join(folder, "x"), "w").close()
""",
    "temp_file": """
import os, tempfile
with tempfile.NamedTemporaryFile("w") as f:
    f.write("x"); f.flush(); assert os.path.getsize(f.name) == 1
with tempfile.TemporaryFile() as f: f.write(b"x")
with tempfile.SpooledTemporaryFile(10) as f: f.write(b"x" * 99)
""",
    "temp_private_in_work": """
import os, tempfile
folder = tempfile.mkdtemp(dir="."); os.chmod(folder, 0o700)
fd, name = tempfile.mkstemp(dir=folder); os.write(fd, b"x"); os.rename(name, "moved")
""",
    "sqlite": """
import sqlite3
with sqlite3.connect("data.db") as db:
    db.execute("pragma journal_mode=wal"); db.execute("create table t (a)")
    db.executemany("insert into t values (?)", [(i,) for i in range(999)])
assert sqlite3.connect("data.db").execute("select sum(a) from t").fetchone()[0]
""",
    "locks": """
import fcntl, os, threading
with open("lock", "w") as f:
    fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB); fcntl.lockf(f, fcntl.LOCK_EX)
lock = threading.RLock(); condition = threading.Condition(lock)
with condition: condition.notify_all()
os.link("lock", "other"); os.symlink("lock", "soft")
""",
    "mmap": """
import mmap
with open("m", "w+b") as f:
    f.truncate(1 << 16)
    with mmap.mmap(f.fileno(), 0) as m: m[:3] = b"abc"
anonymous = mmap.mmap(-1, 1 << 16); anonymous.write(b"x")
""",
    "shutil": """
import os, shutil
os.makedirs("a/b"); open("a/b/c", "w").write("x"); shutil.copytree("a", "d")
shutil.make_archive("arc", "zip", "a"); shutil.move("d", "e"); shutil.rmtree("a")
assert shutil.disk_usage(".").total
""",
    "zip_and_gzip": """
import gzip, io, tarfile, zipfile
with gzip.open("x.gz", "wt") as f: f.write("1")
with zipfile.ZipFile("x.zip", "w") as z: z.write("x.gz")
with tarfile.open("x.tar.xz", "w:xz") as t: t.add("x.gz")
""",
    "random_and_hash": """
import hashlib, os, random, secrets, uuid
os.urandom(9); secrets.token_hex(); uuid.uuid4(); uuid.uuid1()
random.SystemRandom().random(); hashlib.sha256(b"x").hexdigest()
""",
    "platform": "import platform as p; p.platform(); p.processor(); p.node()",
    "resource": """
import resource, os
resource.getrusage(resource.RUSAGE_SELF); resource.getrlimit(resource.RLIMIT_NOFILE)
soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
resource.setrlimit(resource.RLIMIT_CORE, (0, hard)); os.getloadavg(); os.times()
""",
    "signals": """
import signal, time, os
seen = []
signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.01); time.sleep(0.1); assert seen
signal.signal(signal.SIGUSR1, lambda *_: seen.append(2))
os.kill(os.getpid(), signal.SIGUSR1); assert 2 in seen
""",
    "nice": "import os; os.nice(1); os.sched_yield(); os.sched_getaffinity(0)",
    "libraries": """
import ctypes, ctypes.util
assert ctypes.CDLL(None).getpid(); ctypes.util.find_library("m")
import ssl, sqlite3, lzma, bz2, zlib, curses, readline
""",
    "warnings_and_traceback": """
import logging, traceback, warnings, faulthandler, sys
warnings.warn("w"); logging.warning("l")
try: 1 / 0
except ZeroDivisionError: traceback.print_exc()
faulthandler.dump_traceback(sys.stderr)
""",
    # --- processes
    "subprocess": """
import subprocess, sys
done = subprocess.run([sys.executable, "-c", "print(5)"], capture_output=True)
assert done.stdout == b"5\\n", done
assert subprocess.check_output("echo a | tr a b", shell=True) == b"b\\n"
""",
    "system_tools": """
import os, subprocess
assert os.system("ls -la > out && sort out | head -2 > /dev/null") == 0
assert subprocess.check_output(["sh", "-c", "nproc"]).strip().isdigit()
""",
    "fork_and_wait": """
import os
r, w = os.pipe()
if os.fork() == 0: os.write(w, b"x"); os._exit(7)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 7 and os.read(r, 1) == b"x"
""",
    "threads": """
import concurrent.futures as cf, queue, threading
with cf.ThreadPoolExecutor() as p: assert sum(p.map(abs, range(50))) == 1225
""",
    "process_pool": _MP
    + "import concurrent.futures as cf\n"
    + _MAIN
    + "with cf.ProcessPoolExecutor(2) as p: assert list(p.map(square, [2])) == [4]",
    "pool_fork": _MP
    + _MAIN
    + "with mp.get_context('fork').Pool() as p: assert p.map(square, [2]) == [4]",
    "pool_spawn": _MP
    + _MAIN
    + "with mp.get_context('spawn').Pool(1) as p: assert p.map(square, [2]) == [4]",
    "pool_forkserver": _MP
    + _MAIN
    + "context = mp.get_context('forkserver')\n"
    + "    with context.Pool(1) as p: assert p.map(square, [2]) == [4]",
    "manager": _MP
    + _MAIN
    + "with mp.Manager() as m: d = m.dict(a=1); q = m.Queue(); q.put(d['a']); q.get()",
    "process_queue": _MP
    + "def work(q): q.put(3)\n"
    + _MAIN
    + "q = mp.Queue(); p = mp.Process(target=work, args=(q,)); p.start()\n"
    + "    assert q.get(timeout=30) == 3; p.join()",
    "process_pipe_and_values": _MP
    + "def work(c, v):\n    with v.get_lock(): v.value += 1\n    c.send(1)\n"
    + _MAIN
    + "a, b = mp.Pipe(); v = mp.Value('i', 4); e = mp.Event(); s = mp.Semaphore(2)\n"
    + "    p = mp.Process(target=work, args=(b, v)); p.start()\n"
    + "    assert a.recv() == 1; p.join(); assert v.value == 5; e.set(); s.acquire()",
    "shared_memory": """
from multiprocessing import shared_memory
block = shared_memory.SharedMemory(create=True, size=4096)
block.buf[:2] = b"ab"; again = shared_memory.SharedMemory(block.name)
assert bytes(again.buf[:2]) == b"ab"; again.close(); block.close(); block.unlink()
""",
    # --- sockets among one's own
    "localhost": """
import socket, threading
server = socket.create_server(("127.0.0.1", 0))
def serve():
    peer, _ = server.accept(); peer.sendall(peer.recv(9)); peer.close()
threading.Thread(target=serve).start()
with socket.create_connection(server.getsockname(), timeout=20) as c:
    c.sendall(b"hi"); assert c.recv(9) == b"hi"
""",
    "localhost_by_name": """
import socket
assert socket.gethostbyname("localhost") == "127.0.0.1"
server = socket.create_server(("localhost", 0))
socket.create_connection(("localhost", server.getsockname()[1]), timeout=20).close()
""",
    "http": """
import http.server, threading, urllib.request
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0),
    http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = "http://127.0.0.1:%d/script.py" % server.server_address[1]
assert b"urlopen" in urllib.request.urlopen(url, timeout=20).read()
""",
    "unix_socket": """
import os, socket, tempfile
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "s")
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as c:
        server.bind(path); server.listen(); c.connect(path); server.accept()[0].close()
""",
    "asyncio": """
import asyncio, sys
async def main():
    async def echo(reader, writer):
        writer.write(await reader.read(9)); writer.close()
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"x"); writer.write_eof(); assert await reader.read() == b"x"
    p = await asyncio.create_subprocess_exec(sys.executable, "-c", "1")
    assert await p.wait() == 0
asyncio.run(main())
""",
    # --- numerical libraries
    "numpy_blas": "# needs: numpy"
    + _DATA
    + "a = x.T @ x; np.linalg.svd(a); np.save('a.npy', a)\n",
    "numpy_memmap": """# needs: numpy
import numpy as np
m = np.memmap("m", "f4", "w+", shape=9); m[:] = 1
""",
    "pandas": """# needs: pandas
import pandas as pd
pd.DataFrame({"a": [1, 2]}).to_csv("a.csv"); assert len(pd.read_csv("a.csv")) == 2
""",
    "scipy": "# needs: scipy\nfrom scipy import optimize\n"
    "optimize.minimize(lambda v: (v**2).sum(), [1.0, 2.0])",
    "joblib": """# needs: joblib
from joblib import Parallel, delayed, Memory, dump, load, cpu_count
assert Parallel(n_jobs=2)(delayed(abs)(-i) for i in range(4)) == [0, 1, 2, 3]
assert Parallel(n_jobs=-1)(delayed(abs)(-i) for i in range(4)) == [0, 1, 2, 3]
Parallel(n_jobs=2, backend="multiprocessing")(delayed(abs)(i) for i in range(4))
Parallel(n_jobs=2, prefer="threads")(delayed(abs)(i) for i in range(4))
dump([1], "x.joblib"); assert load("x.joblib") == [1]
assert Memory("cache", verbose=0).cache(abs)(-1) == 1 and cpu_count() >= 1
""",
    "joblib_memmap": """# needs: joblib
import numpy as np
from joblib import Parallel, delayed
big = np.ones(400_000)
assert Parallel(n_jobs=2)(delayed(np.sum)(big) for _ in range(2)) == [400_000.0] * 2
""",
    "sklearn_forest": _SK
    + """
from sklearn.ensemble import RandomForestClassifier
RandomForestClassifier(20, n_jobs=-1).fit(x, y).score(x, y)
""",
    "sklearn_search": _SK
    + """
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
GridSearchCV(LogisticRegression(), {"C": [0.1, 1]}, n_jobs=-1, cv=2).fit(x, y)
cross_val_score(LogisticRegression(), x, y, n_jobs=2)
""",
    "sklearn_boosting": _SK
    + """
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.neighbors import KNeighborsClassifier
HistGradientBoostingClassifier(max_iter=5).fit(x, y)
KNeighborsClassifier(n_jobs=-1).fit(x, y).predict(x)
""",
    "lightgbm": _LGB
    + "model = lgb.LGBMClassifier(n_estimators=5, n_jobs=-1, verbose=-1)\n"
    + "model.fit(x, y).predict(x)\n",
    "lightgbm_train": _LGB
    + "d = lgb.Dataset(x, y); p = {'num_threads': 0, 'verbose': -1}\n"
    + "m = lgb.train(p, d, 5); m.save_model('m.txt')\n"
    + "lgb.Booster(model_file='m.txt')\n",
    "matplotlib": """# needs: matplotlib
import matplotlib.pyplot as plt
plt.plot([1, 2]); plt.title("x"); plt.savefig("a.png"); plt.savefig("a.svg")
""",
    "pillow": """# needs: PIL
from PIL import Image
Image.new("L", (9, 9)).save("a.png")
""",
    "psutil": """# needs: psutil
import psutil
assert psutil.cpu_count() >= 1 and psutil.virtual_memory().total
psutil.Process().memory_info(); psutil.cpu_percent(); psutil.cpu_count(logical=False)
""",
    "jax": """# needs: jax
import jax, jax.numpy as jnp
assert float(jax.jit(lambda v: (v @ v).sum())(jnp.ones((9, 9)))) == 729
""",
    "torch": """# needs: torch
import torch
from torch.utils.data import DataLoader, TensorDataset
if __name__ == "__main__":
    loader = DataLoader(TensorDataset(torch.ones(8, 2)), 2, num_workers=2)
    assert sum(b[0].sum() for b in loader) == 16
""",
    # No process group: gloo lists the network interfaces by a netlink socket, which no
    # level has. The launcher and its store do without.
    "torchrun": """# needs: torch
import os, subprocess, sys
code = '''
import os
from torch.distributed import TCPStore
rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"])
store = TCPStore(os.environ["MASTER_ADDR"], port, 2, is_master=False)
store.set(str(rank), "here")
store.wait(["0", "1"])
'''
open("work.py", "w").write(code)
command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
subprocess.run([*command, "--nproc-per-node=2", "work.py"], check=True, timeout=100)
""",
}

#: psutil wants all of /proc, which no Landlock rule can show in part.
NOT_AT_LANDLOCK = {"psutil"}


def needs(text: str) -> list[str]:
    """Modules that a script cannot do without."""
    first = text.partition("\n")[0]
    return (
        first.removeprefix("# needs:").split() if first.startswith("# needs:") else []
    )


def runnable(level: str) -> list[str]:
    """Names of the scripts whose modules are here and that a level can run."""
    left_out = NOT_AT_LANDLOCK if level.upper() == "LANDLOCK" else set()
    return [
        name
        for name, text in SCRIPTS.items()
        if name not in left_out and all(map(importlib.util.find_spec, needs(text)))
    ]


def failures(level: str, names: list[str]) -> dict[str, str]:
    """Run scripts at a level; how each that did not end well ended."""
    from sandbox_exec import Limits, LocalPool, ScriptJob

    limits, wrong = Limits(wall_s=200, memory_mb=3072), {}
    with LocalPool(1, level=level, calibrate=False, rerun_contended=False) as pool:
        for name in names:
            job = ScriptJob(script=SCRIPTS[name].encode(), limits=limits)
            record = pool.submit(job).result()
            if record.status != "ok":
                said = record.stderr_head + record.stderr_tail
                wrong[name] = f"{record.status} {record.error} {said[-800:]}"
    return wrong


if __name__ == "__main__":
    names = runnable(sys.argv[1])
    print(json.dumps({"ran": names, "failed": failures(sys.argv[1], names)}))
