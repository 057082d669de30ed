"""Write the API pages: which names each page shows; mkdocstrings fills in the text.

python docs/tools/api.py            # write the pages
python docs/tools/api.py --check    # exit code 1 if one is out of date
"""

import argparse
import importlib
import inspect
import pkgutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "reference"
sys.path.insert(0, str(ROOT))

NOTE = "<!-- Written by docs/tools/api.py from the packages' public names. -->"

#: page -> (introduction, packages whose public names it shows, whole modules).
CONTENT: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "rpg_jax": (
        "Estimators, rewards, updates and losses. All public names are in `rpg_jax` "
        "itself (`rpg_jax.niw`, ...); the headings say where they are defined.",
        ("rpg_jax",),
        (
            "rpg_jax.adapters.relative",
            "rpg_jax.adapters.objective",
            "rpg_jax.adapters.server",
            "rpg_jax.adapters.service",
            "rpg_jax.adapters.trl",
            "rpg_jax.adapters.verl",
            "rpg_jax.adapters.tunix",
        ),
    ),
    "llm": (
        "Language models, weights, the sampler, the PPO step and checkpoints. All "
        "names are in `rpg_jax.llm` and load on first use.",
        ("rpg_jax.llm",),
        (),
    ),
    "sandbox_exec": (
        "Contained and timed execution of untrusted scripts; the guide is "
        "[Run untrusted scripts](../sandbox.md).",
        ("sandbox_exec",),
        (),
    ),
    "rpg_tasks": (
        "Tasks: registry, data, graders, scores, prompts, and the kit that a task's "
        "`data.py` is made of. The names of the "
        "package itself are in `rpg_tasks` and load on first use.",
        ("rpg_tasks", "rpg_tasks.prompts", "rpg_tasks.kit"),
        (),
    ),
    "bandit": (
        "The bandit study. The folder is in the checkout and not in the wheel; "
        "notebook `03_your_own_bandit.py` uses most of what is here.",
        (),
        ("bandit",),
    ),
}


def shown(module: str) -> list[str]:
    """A module, or the modules of a package that are not private."""
    found = importlib.import_module(module)
    if not hasattr(found, "__path__"):
        return [module]
    names = [m.name for m in pkgutil.iter_modules(found.__path__)]
    return [
        name
        for part in sorted(names)
        if not part.startswith("_")
        for name in shown(f"{module}.{part}")
    ]


def public(package: str) -> dict[str, list[str]]:
    """Public functions and classes of a package by the module that defines them."""
    found = importlib.import_module(package)
    homes: dict[str, list[str]] = {}
    for name in found.__all__:
        value = getattr(found, name)
        if inspect.ismodule(value):
            continue
        home = getattr(value, "__module__", package)
        if not home.startswith(package.split(".")[0]):
            home = package
        homes.setdefault(home, []).append(name)
    return dict(sorted(homes.items()))


def page(name: str) -> str:
    """A page's text."""
    introduction, packages, modules = CONTENT[name]
    title = {"llm": "rpg_jax.llm"}.get(name, name)
    parts = [f"# {title}\n\n{NOTE}\n\n{introduction}\n"]
    for package in packages:
        for home, names in public(package).items():
            parts.append(f"## {home}\n")
            parts += [
                f"::: {home}.{n}\n    options: {{heading_level: 3}}\n"
                for n in sorted(names)
            ]
    for module in modules:
        parts += [
            f"::: {m}\n    options: {{heading_level: 2}}\n" for m in shown(module)
        ]
    return "\n".join(parts)


def main() -> int:
    """Write the pages, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check, stale = parser.parse_args().check, []
    for name in CONTENT:
        path, text = PAGES / f"{name}.md", page(name)
        if not check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.name)
    if stale:
        print(f"out of date: {', '.join(stale)}; run python docs/tools/api.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
