"""Scripts that fail in the ways scripts do: a typing error, a wrong name, a bad file.

A failure is made from a good script by one small change. What an improve prompt then
says (``reason`` and the end of the output) has the form of the sandbox's and the
grader's words; the tests run the scripts, so a kind that stopped failing would be seen.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np


@dataclasses.dataclass(frozen=True)
class Failure:
    """A script that fails, and how an attempt with it looks.

    Attributes:
        kind: name of the change.
        script: the changed script.
        reason: what went wrong, in words.
        output: the last line that it prints to standard error; may be empty.
    """

    kind: str
    script: str
    reason: str
    output: str


# (script, reason, last line of the output), or None where a change does not apply.
Changed = tuple[str, str, str] | None
Change = Callable[[str, np.random.Generator], Changed]

_T = TypeVar("_T")


def _pick(rng: np.random.Generator, items: Sequence[_T]) -> _T:
    return items[int(rng.integers(len(items)))]


def _bracket(script: str, rng: np.random.Generator) -> Changed:
    """A closing bracket is missing."""
    lines = script.split("\n")
    places = [
        k
        for k, line in enumerate(lines)
        if line.endswith(")") and " = " in line and line.count("(") == line.count(")")
    ]
    if not places:
        return None
    k = _pick(rng, places)
    lines[k] = lines[k][:-1]
    error = "SyntaxError: '(' was never closed"
    return "\n".join(lines), "exit code 1", error


def _indent(script: str, rng: np.random.Generator) -> Changed:
    """A line of a block lost its indentation."""
    lines = script.split("\n")
    places = [
        k + 1
        for k, line in enumerate(lines[:-1])
        if re.match(r"(def|for|with) .*:$", line) and lines[k + 1].startswith("    ")
    ]
    if not places:
        return None
    k = _pick(rng, places)
    lines[k] = lines[k].lstrip()
    error = "IndentationError: expected an indented block"
    return "\n".join(lines), "exit code 1", error


def _import(script: str, rng: np.random.Generator) -> Changed:
    """An import was forgotten."""
    lines = script.split("\n")
    places = [
        k
        for k, line in enumerate(lines)
        if re.match(r"(from \S+ )?import \w+( as \w+)?$", line)
    ]
    if not places:
        return None
    line = lines.pop(_pick(rng, places))
    name = line.split()[-1]
    return "\n".join(lines), "exit code 1", f"NameError: name '{name}' is not defined"


def _column(script: str, rng: np.random.Generator) -> Changed:
    """A column is misspelled."""
    names = re.findall(r'(?:train|test|frame)\["(\w+)"\]', script)
    if not names:
        return None
    name = _pick(rng, sorted(set(names)))
    wrong = _pick(rng, [name.upper() + "S", name + "s", name[:-1], "label_" + name])
    place = script.index(f'["{name}"]')
    changed = script[:place] + f'["{wrong}"]' + script[place + len(name) + 4 :]
    return changed, "exit code 1", f"KeyError: '{wrong}'"


def _path(script: str, rng: np.random.Generator) -> Changed:
    """A file is looked for where it is not."""
    paths = sorted(set(re.findall(r'"input/([\w./]+)"', script)))
    if not paths:
        return None
    path = _pick(rng, paths)
    folder, dot, suffix = path.rpartition(".")
    name = f"{folder}_data.{suffix}" if dot else f"{path}_data"
    wrong = _pick(rng, [f"input/{name}", f"data/{path}", path])
    changed = script.replace(f'"input/{path}"', f'"{wrong}"', 1)
    error = f"FileNotFoundError: [Errno 2] No such file or directory: '{wrong}'"
    return changed, "exit code 1", error


def _method(script: str, rng: np.random.Generator) -> Changed:
    """A method that does not exist."""
    pairs = {
        ".predict_proba(": ".predict_probability(",
        ".predict(": ".predictions(",
        ".to_csv(": ".write_csv(",
        ".fit_transform(": ".fit_and_transform(",
    }
    found = [name for name in pairs if name in script]
    if not found:
        return None
    name = _pick(rng, found)
    wrong = pairs[name]
    error = f"AttributeError: object has no attribute '{wrong[1:-1]}'"
    return script.replace(name, wrong, 1), "exit code 1", error


def _rows(script: str, rng: np.random.Generator) -> Changed:
    """The submission holds half of the rows."""
    old = '.to_csv("submission.csv"'
    if old not in script:
        return None
    new = f'.head({_pick(rng, [10, 50, 100])}).to_csv("submission.csv"'
    return script.replace(old, new, 1), "invalid submission: wrong number of rows", ""


def _forgotten(script: str, rng: np.random.Generator) -> Changed:
    """The submission goes elsewhere."""
    if '"submission.csv"' not in script:
        return None
    name = _pick(rng, ["output.csv", "submit.csv", "predictions.csv", "result.csv"])
    changed = script.replace('"submission.csv"', f'"{name}"')
    return changed, "no submission.csv was written", ""


def _blank(script: str, rng: np.random.Generator) -> Changed:
    """Predictions that are not a number."""
    found = re.search(r"^p = model[^\n]*$", script, re.MULTILINE)
    if not found:
        return None
    cut = _pick(rng, ["0.1", "0.3", "0.5", "0.7", "p.mean()"])
    changed = script.replace(found[0], f"{found[0]}\np[p < {cut}] = float('nan')", 1)
    return changed, "invalid submission: missing values", ""


KINDS: dict[str, Change] = {
    "bracket": _bracket,
    "indent": _indent,
    "import": _import,
    "column": _column,
    "path": _path,
    "method": _method,
    "rows": _rows,
    "forgotten": _forgotten,
    "blank": _blank,
}
# These two do not parse; together they are a quarter of all failures or less.
SYNTAX = ("bracket", "indent")


def fail(script: str, rng: np.random.Generator) -> Failure:
    """The script with one thing wrong; the kind is drawn among those that apply."""
    for kind in rng.permutation(list(KINDS)):
        if (made := KINDS[kind](script, rng)) is not None:
            changed, reason, output = made
            return Failure(str(kind), changed, reason, output)
    raise ValueError("no kind of failure applies to this script")
