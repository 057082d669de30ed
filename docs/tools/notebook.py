"""Make 01_the_idea.ipynb, with its outputs, from 01_the_idea.py.

    PYTHONPATH=. python docs/tools/notebook.py          # run and write
    PYTHONPATH=. python docs/tools/notebook.py --check  # compare sources

Other notebooks are committed as scripts alone; jupytext converts them.
"""

import argparse
import base64
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "notebooks" / "01_the_idea.py"
MARKDOWN, CODE = "# %% [markdown]", "# %%"


class Cell(NamedTuple):
    """A cell of a script in percent format."""

    kind: str  # markdown or code
    source: str


def cells(script: Path) -> list[Cell]:
    """The cells of a script; text cells are triple-quoted strings."""
    found: list[Cell] = []
    lines: list[str] = []
    kind = ""

    def close() -> None:
        text = "\n".join(lines).strip()
        if kind == "markdown":
            text = text.removeprefix('"""').removesuffix('"""').strip()
        if kind and text:
            found.append(Cell(kind, text))
        lines.clear()

    for line in script.read_text(encoding="utf-8").splitlines():
        if line.startswith(CODE):
            close()
            kind = "markdown" if line.startswith(MARKDOWN) else "code"
        else:
            lines.append(line)
    close()
    return found


def run(source: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a cell; what it prints and draws, as a notebook's outputs."""
    import matplotlib.pyplot as plt

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, SCRIPT.name, "exec"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        outputs.append({"name": "stdout", "output_type": "stream", "text": text})
    for number in plt.get_fignums():
        image = io.BytesIO()
        plt.figure(number).savefig(image, format="png", dpi=90)
        data = base64.b64encode(image.getvalue()).decode()
        outputs.append(
            {
                "data": {"image/png": data},
                "metadata": {},
                "output_type": "display_data",
            }
        )
    plt.close("all")
    return outputs


def notebook(found: list[Cell], *, execute: bool) -> dict[str, Any]:
    """The notebook's JSON."""
    made, names, count = [], {"__name__": "__main__"}, 0
    for number, cell in enumerate(found):
        entry: dict[str, Any] = {
            "cell_type": cell.kind,
            "id": f"cell-{number:02d}",
            "metadata": {},
            "source": cell.source.splitlines(keepends=True),
        }
        if cell.kind == "code":
            count += 1
            outputs = run(cell.source, names) if execute else []
            entry |= {"execution_count": count, "outputs": outputs}
        made.append(entry)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def sources(book: dict[str, Any]) -> list[tuple[str, str]]:
    """Kind and text of each cell."""
    return [(c["cell_type"], "".join(c["source"])) for c in book["cells"]]


def main() -> int:
    """Write the notebook, or compare its cells with the script's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    target = SCRIPT.with_suffix(".ipynb")
    if parser.parse_args().check:
        wanted = notebook(cells(SCRIPT), execute=False)
        if sources(json.loads(target.read_text("utf-8"))) == sources(wanted):
            return 0
        print(f"{target.name} is not {SCRIPT.name}: python docs/tools/notebook.py")
        return 1
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    plt.show = lambda: None
    text = json.dumps(notebook(cells(SCRIPT), execute=True), indent=1)
    target.write_text(text.replace(str(ROOT), ".") + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
