"""Pages of the site: what they show runs, what they name exists."""

import ast
import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile

import pytest
from repo_paths import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
OURS = ("rpg_jax", "sandbox_exec", "rpg_tasks", "bandit", "experiments")
BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)


def name_of(path):
    return str(path.relative_to(DOCS))


def blocks(path):
    return BLOCK.findall(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "path", [p for p in PAGES if blocks(p)], ids=lambda path: path.name
)
def test_code_of_a_page_names_what_exists(path):
    for block in blocks(path):
        tree = ast.parse(block)
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom) or not node.module:
                continue
            if node.module.split(".")[0] not in OURS:
                continue
            module = importlib.import_module(node.module)
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                assert hasattr(module, alias.name) or importlib.util.find_spec(whole), (
                    f"{path.name}: {whole}"
                )


@pytest.mark.parametrize(
    "page",
    [
        "concepts/reward-rate.md",
        "how-to/own-trainer.md",
        "how-to/when-to-price-time.md",
    ],
)
def test_code_of_a_page_runs(page):
    names: dict[str, object] = {}  # a page is read from its top
    for block in blocks(DOCS / page):
        exec(compile(block, page, "exec"), names)


def test_the_arm_of_the_guide_can_be_named(tmp_path):
    (block,) = blocks(DOCS / "parts" / "add_an_arm.md")
    plugin = tmp_path / "my_arm.py"
    plugin.write_text(block, encoding="utf-8")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "experiments.mle_bench", "--task=spooky-author"),
            *(f"--plugins={plugin}", "--arms=rpg,priced-learning", "--dry_run"),
        ],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert '"priced-learning"' in done.stdout


def test_links_and_parts_of_pages_exist():
    for path in PAGES:
        text = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.S | re.M)
        # A part's links are those of the page that includes it.
        base = DOCS if path.parent.name == "parts" else path.parent
        for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
            assert (base / link).exists(), f"{name_of(path)}: {link}"
        for part in re.findall(r'--8<-- "([^"]+)"', text):
            assert (ROOT / part).is_file(), f"{name_of(path)}: {part}"


def test_every_page_is_in_the_navigation():
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = set(re.findall(r":\s(\S+\.md)$", config, flags=re.MULTILINE))
    there = {name_of(p) for p in PAGES if p.parent.name != "parts"}
    assert listed == there


@pytest.mark.parametrize("tool", ["pictures", "api"])
def test_generated_pages_are_up_to_date(tool):
    check_generated(tool)


@pytest.mark.slow
def test_flags_of_the_commands_are_up_to_date():
    check_generated("commands")


def check_generated(tool):
    done = subprocess.run(
        [sys.executable, f"docs/tools/{tool}.py", "--check"],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def fields_of(section):
    """Names in the first column of a section's table, and in its text."""
    text = (DOCS / "reference" / "run-folder.md").read_text(encoding="utf-8")
    part = text.split(f"## {section}\n")[1].split("\n## ")[0]
    return set(re.findall(r"`([a-z_0-9]+)`", part))


@pytest.mark.parametrize("kind", ["attempts", "metrics", "final"])
def test_every_field_of_a_record_is_explained(kind):
    import json

    archive = ROOT / "results" / "mle_bench" / "records" / "leaf-classif.tar.xz"
    names = set()
    with tarfile.open(archive) as files:
        for member in files:
            if member.name.endswith(f"/{kind}.jsonl"):
                for line in files.extractfile(member).read().splitlines():
                    names |= set(json.loads(line))
    assert names
    assert names <= fields_of(f"{kind}.jsonl")


def test_the_notes_stay_short():
    lines = (ROOT / "BUILD_NOTES.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) < 250


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("mkdocstrings") is None, reason="pip install -e '.[docs]'"
)
def test_the_site_builds_without_a_warning(tmp_path):
    mkdocs = shutil.which("mkdocs", path=os.path.dirname(sys.executable))
    done = subprocess.run(
        [mkdocs, "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "index.html").exists()
