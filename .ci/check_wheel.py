"""check_wheel.py WHEEL BIN: what the wheel holds, and whether it works alone."""

import subprocess
import sys
import zipfile
from pathlib import Path

PACKAGES = {"rpg_jax", "sandbox_exec", "rpg_tasks"}
NEEDED = (
    "rpg_jax/llm/tiny/model.safetensors",
    "rpg_jax/py.typed",
    "sandbox_exec/py.typed",
    "rpg_tasks/py.typed",
)
HEAVY = ("distrax", "transformers", "matplotlib", "torch", "pandas", "sklearn")
CLOCK = "import time; t = time.time(); import rpg_jax; print(time.time() - t)"
LOADED = f"import sys, rpg_jax; print([m for m in {HEAVY} if m in sys.modules])"

wheel, folder = sys.argv[1], Path(sys.argv[2])
names = zipfile.ZipFile(wheel).namelist()
tops = {name.split("/")[0] for name in names}
extra = {top for top in tops if not top.endswith(".dist-info")} - PACKAGES
assert not extra, f"the wheel also holds {sorted(extra)}"
missing = [name for name in NEEDED if name not in names]
assert not missing, f"the wheel lacks {missing}"
print(f"{len(names)} files in {sorted(tops)}")


def run(*command: str, codes: tuple[int, ...] = (0,)) -> str:
    """Output of a command of the empty environment."""
    done = subprocess.run(
        [str(folder / command[0]), *command[1:]],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in codes, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


seconds = min(float(run("python", "-c", CLOCK)) for _ in range(3))
print(f"import rpg_jax: {seconds:.2f} s (aim: under 1.5)")
loaded = run("python", "-c", LOADED).strip()
assert loaded == "[]", f"import rpg_jax also loads {loaded}"
# 1 where nothing but Landlock contains scripts: bubblewrap is an extra.
doctor = run("rpg-sandbox", "doctor", codes=(0, 1))
assert doctor.startswith("level: "), doctor
print(doctor.splitlines()[0])
tasks = run("rpg-tasks", "list")
assert "spooky-author" in tasks, tasks
print(tasks.splitlines()[0])
