# Thin targets.  Each one sets up what it needs: a virtual environment in the tree with the package in editable mode.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SMALL := $(VENV)/.ready-demo
SITE := $(VENV)/.ready-docs

.PHONY: setup demo test docs docs-serve pages test-oldest test-newest dist check fuzz soak bench figures browser clean

setup: $(READY)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(READY): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $(READY)

# Without the development tools; an environment that has them will do.
$(SMALL): pyproject.toml | $(BIN)/python
	test -e $(READY) || $(BIN)/python -m pip install --quiet --editable ".[plot]"
	touch $(SMALL)

demo: $(SMALL)
	$(BIN)/kbrl demo

# The documentation as a site in build/site; a broken link is an error.  No page asks another host for anything.
$(SITE): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable ".[docs]"
	touch $(SITE)

docs: $(SITE)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	$(BIN)/python docs/scripts/check_site.py build/site

docs-serve: $(SITE)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs serve --dev-addr 127.0.0.1:8000

# What pages show is made by running it: outputs, headline results, pictures and notebooks.  The tests compare.
pages: setup
	$(BIN)/python docs/scripts/pictures.py
	$(BIN)/python docs/scripts/notebooks.py
	$(BIN)/python docs/scripts/headline.py
	$(BIN)/python docs/scripts/fill_outputs.py

test: setup
	$(BIN)/python -m pytest -n 2

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# With the oldest versions that pyproject.toml allows, and with the newest, including those that are not yet final.
test-oldest:
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet --upgrade pip
	.venv-oldest/bin/python -m pip install --quiet --constraint oldest.txt --editable ".[dev]"
	.venv-oldest/bin/python -m pytest -n 2 $(TESTS)

test-newest:
	$(PYTHON) -m venv .venv-newest
	.venv-newest/bin/python -m pip install --quiet --upgrade pip
	.venv-newest/bin/python -m pip install --quiet --upgrade --upgrade-strategy eager --pre --editable ".[dev]"
	.venv-newest/bin/python -m pytest -n 2 $(TESTS)

# The wheel and the source archive; the wheel is tried in an environment that has nothing but what kbrl needs.
dist:
	rm -rf dist .venv-dist
	$(PYTHON) -m venv .venv-dist
	.venv-dist/bin/python -m pip install --quiet --upgrade pip build
	.venv-dist/bin/python -m build --outdir dist .
	$(PYTHON) -m venv --clear .venv-dist
	.venv-dist/bin/python -m pip install --quiet dist/kbrl-*.whl
	.venv-dist/bin/python .ci/try_wheel.py

# Damaged and forged files against every reader and the model loader; hours on demand: make fuzz SECONDS=7200 SEED=1
SECONDS ?= 60
SEED ?= 0
fuzz: setup
	$(BIN)/python -m fuzz --seconds $(SECONDS) --seed $(SEED)

# Learning for a long time while threads ask, workers die and the disk is full.  With one more arena of the C library for
# each new thread, empty ones would look like growth.
SOAK ?= 3600
soak: setup
	MALLOC_ARENA_MAX=2 $(BIN)/python -m fuzz.soak --seconds $(SOAK)

bench: setup
	$(BIN)/python -m benchmarks

# The tests open a report in it; where there is none, they say so and skip that.
browser:
	command -v chromium || command -v google-chrome || (apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium)

SCALE ?= laptop
figures: setup
	$(BIN)/python -m experiments $(ONLY) --scale $(SCALE)

clean:
	rm -rf $(VENV) .venv-oldest .venv-newest .venv-dist build dist demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
