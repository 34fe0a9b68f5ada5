# Thin targets.  Each one sets up what it needs: a virtual environment in the tree with the package in editable mode.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: setup demo test check bench figures browser clean

setup: $(READY)

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $(READY)

demo: setup
	$(BIN)/kbrl demo

test: setup
	$(BIN)/python -m pytest -n 2

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	$(BIN)/python -m benchmarks

# The tests open a report in it; where there is none, they say so and skip that.
browser:
	command -v chromium || command -v google-chrome || (apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium)

SCALE ?= laptop
figures: setup
	$(BIN)/python -m experiments $(ONLY) --scale $(SCALE)

clean:
	rm -rf $(VENV) build dist demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
