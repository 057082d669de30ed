"""What `import rpg_jax` may and may not pull in, and which way imports point."""

import ast
import subprocess
import sys

import pytest
from repo_paths import ROOT

HEAVY = ["distrax", "transformers", "matplotlib", "torch", "tensorflow", "ray"]
HEAVY += ["tokenizers", "gguf"]
# What the language models need, and the rates do not.
LATER = ["flax", "optax", "orbax"]
FORBIDDEN = {
    "rpg_jax": {"sandbox_exec", "bandit", "experiments", "benchmarks", "tests"},
    "sandbox_exec": {
        "rpg_jax", "bandit", "experiments", "benchmarks", "tests", "jax", "numpy",
    },
    "bandit": {"sandbox_exec", "experiments", "benchmarks", "tests"},
}  # fmt: skip


def run(code):
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_import_is_light_and_leaves_jax_configuration_alone():
    code = f"""
import jax, sys
before = dict(jax.config.values)
import rpg_jax, rpg_jax.adapters.trl, rpg_jax.adapters.verl, rpg_jax.adapters.tunix
after = dict(jax.config.values)
assert before == after, "configuration changed"
loaded = [m for m in {HEAVY + LATER} if m in sys.modules]
assert not loaded, loaded
for trainer in ("trl", "verl", "tunix"):
    assert trainer not in sys.modules
missing = [n for n in rpg_jax.__all__ if not hasattr(rpg_jax, n)]
assert not missing, missing

import rpg_jax.llm
names = {{n: getattr(rpg_jax.llm, n) for n in rpg_jax.llm.__all__}}
assert {{"stop_ids", "chat_ids", "decode", "initialize"}} <= set(names)
loaded = [m for m in {HEAVY} if m in sys.modules]
assert not loaded, loaded
"""
    done = run(code)
    assert done.returncode == 0, done.stderr


def imported(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module.split(".")[0]


@pytest.mark.parametrize("package", FORBIDDEN)
def test_imports_point_one_way(package):
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    wrong = {
        str(path.relative_to(ROOT)): sorted(bad)
        for path in files
        if (bad := FORBIDDEN[package].intersection(imported(path)))
    }
    assert not wrong


def test_the_library_never_sets_global_jax_options():
    setters = []
    for path in sorted((ROOT / "rpg_jax").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "update"
                and ast.unparse(node.func.value).endswith("config")
            ):
                setters.append(f"{path.name}:{node.lineno}")
    assert not setters
