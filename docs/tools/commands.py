"""Write docs/reference/commands.md from the --help of every command.

python docs/tools/commands.py            # write the page
python docs/tools/commands.py --check    # exit code 1 if it is out of date
"""

import argparse
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "commands.md"

#: (heading, words after ``python -m``).
COMMANDS = (
    ("experiments.mle_bench", ("experiments.mle_bench",)),
    ("experiments.nanogpt", ("experiments.nanogpt",)),
    ("experiments.report", ("experiments.report",)),
    ("experiments.bandit", ("experiments.bandit",)),
    ("experiments.sample", ("experiments.sample",)),
    ("experiments.pretrain", ("experiments.pretrain",)),
    ("experiments.spread", ("experiments.spread",)),
    ("experiments.plan", ("experiments.plan",)),
    ("experiments.export", ("experiments.export",)),
    ("experiments.survey", ("experiments.survey",)),
    ("sandbox_exec doctor", ("sandbox_exec", "doctor")),
    ("sandbox_exec run", ("sandbox_exec", "run")),
    ("sandbox_exec attack", ("sandbox_exec", "attack")),
    *(
        (f"rpg_tasks {name}", ("rpg_tasks", name))
        for name in ("list", "show", "prepare", "prompt", "grade", "check")
        if (ROOT / "rpg_tasks" / "__main__.py").exists()
    ),
)

INTRODUCTION = """\
# Commands and flags

<!-- Written by docs/tools/commands.py: edit the commands' own help. -->

All commands run from a checkout with `python -m`. `python -m experiments` lists those
of `experiments`. Flags look like `--name=value`; `--show-prompt` and `--show_prompt`
are the same flag. Errors of a command line are one line.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | the work failed (or a submission is invalid) |
| 2 | a wrong flag or file; nothing slow has started |
| 130, 143 | stopped by Ctrl-C, by SIGTERM |
| 141 | the reader of the output has left (`head`, `less`) |

The package also installs the console scripts `rpg-sandbox` (the same as
`python -m sandbox_exec`) and `rpg-tasks` (tasks, data, grades and prompts without the
training loop).
"""


def help_of(words: tuple[str, ...]) -> str:
    """What ``python -m WORDS --help`` prints, without this machine's paths."""
    done = subprocess.run(
        [sys.executable, "-m", *words, "--help"],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "88", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    # absl ends its help with exit code 1.
    if done.returncode not in (0, 1) or not done.stdout.strip():
        raise RuntimeError(f"{' '.join(words)} --help: {done.stderr.strip()}")
    kept = [
        line.rstrip()
        for line in done.stdout.splitlines()
        if not re.match(r"^(/.*\.py:|Try --helpfull.*)$", line.strip())
    ]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept).strip())


def page() -> str:
    """The page's text."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        texts = list(pool.map(help_of, [words for _, words in COMMANDS]))
    parts = [INTRODUCTION]
    for (heading, _), text in zip(COMMANDS, texts, strict=True):
        parts.append(f"## {heading}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def main() -> int:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    text = page()
    if not parser.parse_args().check:
        PAGE.write_text(text, encoding="utf-8")
        return 0
    if PAGE.read_text(encoding="utf-8") == text:
        return 0
    print(f"{PAGE.relative_to(ROOT)} is out of date: python docs/tools/commands.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
