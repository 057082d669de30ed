"""The source code of recipes: every option renders, names are defined, imports."""

import ast

import numpy as np
import pytest
from synthetic_helpers import SHORTS

from experiments.menus import draw, recipes
from experiments.menus.source import header, with_imports
from experiments.teaching.writer import parses


def test_every_option_of_every_task_renders_and_is_defined():
    """Each option of each slot, not only what a sample happens to draw."""
    rng = np.random.default_rng(0)
    for short in SHORTS:
        for recipe in recipes(short):
            for slot, options in recipe.slots.items():
                for option in options:
                    choices = recipe.draw(rng)
                    values = [(k, v[-1]) for k, v in option.domains.items()]
                    pick = type(choices[slot])(option.name, tuple(values))
                    script = recipe.render({**choices, slot: pick})
                    assert parses(script), script
                    assert "$" not in script.replace('itude$|count"', "")
                    _assert_names_defined(script)


def _assert_names_defined(script: str) -> None:
    """Every name that is read is a builtin, imported, or bound somewhere."""
    tree = ast.parse(script)
    bound = set(dir(__builtins__)) if not isinstance(__builtins__, dict) else set()
    bound |= set(__builtins__) if isinstance(__builtins__, dict) else set()
    read = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {a.asname or a.name for a in node.names}
        elif isinstance(node, ast.FunctionDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else bound).add(node.id)
    assert read <= bound, (read - bound, script)


@pytest.mark.parametrize("short", SHORTS)
def test_five_hundred_scripts_parse_and_few_are_twins(short):
    rng = np.random.default_rng(1)
    scripts = [draw(short, rng).script for _ in range(500)]
    assert len(set(scripts)) >= 0.8 * 500
    assert all(map(parses, scripts))
    lines = [s.count("\n") for s in scripts]
    assert 10 <= np.median(lines) <= 48
    assert max(lines) <= 66


def test_the_top_has_what_every_script_needs_and_steps_import_their_own():
    blocks = [
        "os.listdir('.')",
        "def features(path):\n    row = []",
        "    row += [median_filter(path, 3).std()]",
        "    row += [median_filter(path, 5).std(), label(path)[1]]",
        "x = label(3)\nmodel = Ridge()",
        "print(cross_val_score(Ridge(), x))",
    ]
    assert header() == "import numpy as np\nimport pandas as pd"
    found = with_imports(blocks)
    assert found[0] == "import os\n" + blocks[0]
    assert found[2].startswith("    from scipy.ndimage import median_filter\n    row")
    # Known inside the function, unknown after it.
    assert found[3].startswith("    from scipy.ndimage import label\n    row")
    assert found[4] == (
        "from scipy.ndimage import label\nx = label(3)\n"
        "from sklearn.linear_model import Ridge\nmodel = Ridge()"
    )
    assert found[5].startswith("from sklearn.model_selection import cross_val_score\np")
