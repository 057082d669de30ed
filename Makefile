# `make demo` and `make test` do all the set-up on a machine with Python 3.11+.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP_FLAGS ?=
STAMP := $(VENV)/.installed

.PHONY: demo test test-all lint format docs clean

$(STAMP): setup.py
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("Python 3.11 or newer is needed, this is %d.%d: try make PYTHON=python3.11" % v[:2])'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip
	$(BIN)/python -m pip install -q $(PIP_FLAGS) -e '.[dev]'
	touch $@

demo: $(STAMP)
	$(BIN)/python -m experiments.mle_bench --task=aptos2019 --chains=4 --steps=10 --plot

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile -m 'not slow' $(PYTEST_ARGS)

# Compiled as users compile; the fast tests are not (tests/conftest.py).
test-all: $(STAMP)
	JAX_DISABLE_MOST_OPTIMIZATIONS=0 $(BIN)/python -m pytest -n 2 $(PYTEST_ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The documentation, into site/; a warning is an error.
docs: $(STAMP)
	$(BIN)/python -m pip install -q $(PIP_FLAGS) -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) build dist site *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
