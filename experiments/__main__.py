"""`python -m experiments`: the commands there are."""

import ast
from pathlib import Path


def main() -> None:
    """Prints every runnable module of this package with its first line."""
    print("Run one with python -m experiments.NAME --help:\n")
    for path in sorted(Path(__file__).parent.glob("*.py")):
        source = path.read_text(encoding="utf-8")
        if path.stem.startswith("_") or 'if __name__ == "__main__"' not in source:
            continue
        summary = (ast.get_docstring(ast.parse(source)) or "").splitlines()[0]
        print(f"  {path.stem:<12} {summary}")


if __name__ == "__main__":
    main()
