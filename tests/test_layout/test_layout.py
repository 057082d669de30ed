"""The house's rules: which way imports point, how long files and functions may be."""

import ast
import subprocess
import sys

import grimp
import pytest
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports
from repo_paths import ROOT

PACKAGES = ("rpg_jax", "sandbox_exec", "rpg_tasks", "bandit", "experiments")
MOST_LINES, MOST_OF_A_FUNCTION = 400, 60


def sources(*folders):
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def test_contracts_of_the_imports_are_kept(monkeypatch):
    monkeypatch.chdir(ROOT)
    assert lint_imports(config_filename="pyproject.toml") == EXIT_STATUS_SUCCESS


def circles(edges):
    """Strongly connected components of more than one node (Tarjan's algorithm)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in edges.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for node in edges:
        if node not in index:
            visit(node)
    return found


def test_the_search_for_circles_finds_them():
    edges = {
        "a": {"b"},
        "b": {"c"},
        "c": {"b", "d"},
        "d": {"e"},
        "e": {"d"},
        "f": {"a"},
    }
    assert sorted(circles(edges)) == [["b", "c"], ["d", "e"]]
    assert circles({"a": {"b"}, "b": set()}) == []


def test_no_import_circle():
    """Imports inside functions count too; a package's __init__ may name its modules."""
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True)
    edges = {m: graph.find_modules_directly_imported_by(m) for m in graph.modules}
    children = {m: graph.find_children(m) for m in graph.modules}
    plain = {
        m: {d for d in found if d not in children[m] and m not in children.get(d, ())}
        for m, found in edges.items()
    }
    assert circles(plain) == []


@pytest.mark.parametrize("folder", [*PACKAGES, "benchmarks", "tests"])
def test_no_file_over_400_lines(folder):
    lengths = {p: len(p.read_text("utf-8").splitlines()) for p in sources(folder)}
    assert lengths
    assert [p for p, n in lengths.items() if n > MOST_LINES] == []


@pytest.mark.parametrize("folder", [*PACKAGES, "benchmarks"])
def test_no_function_over_60_lines(folder):
    long = [
        f"{path.relative_to(ROOT)}:{node.name} ({node.end_lineno - node.lineno + 1})"
        for path in sources(folder)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno - node.lineno >= MOST_OF_A_FUNCTION
    ]
    assert long == []


def test_importing_the_loop_registers_no_flag():
    code = """
import sys
import experiments.loop.algorithm, experiments.running.launch, experiments.running.parts
import experiments.reporting.build, experiments.teaching.training
assert "experiments.cli" not in sys.modules
from absl import flags
ours = ("experiments", "bandit", "rpg_jax", "rpg_tasks", "sandbox_exec")
print([m for m in flags.FLAGS.flags_by_module_dict() if m.split(".")[0] in ours])
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
