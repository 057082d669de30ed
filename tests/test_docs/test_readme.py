"""What the README shows runs as it stands."""

import re

import numpy as np
from repo_paths import ROOT


def test_the_estimator_of_the_readme_runs():
    (code,) = re.findall(
        r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL
    )
    names = {}
    exec(compile(code, "README.md", "exec"), names)
    rho = float(names["rho"])
    assert rho > 0
    expected = names["reward"] - rho * names["duration"]
    np.testing.assert_allclose(names["relative"], expected, rtol=1e-5, atol=1e-5)


def test_the_commands_of_the_readme_are_there():
    text = (ROOT / "README.md").read_text()
    modules = set(re.findall(r"python -m (\w+(?:\.\w+)?)", text))
    assert {"experiments.bandit", "experiments.mle_bench", "sandbox_exec"} <= modules
    for module in modules:
        path = ROOT.joinpath(*module.split("."))
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists()
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / link).exists(), link
