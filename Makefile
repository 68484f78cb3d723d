# Each target sets up what it needs in .venv from nothing, and does nothing twice.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

SINGLE_CELL := .venv-single-cell
LOWEST := .venv-lowest
WHEEL := .venv-wheel
# the lowest versions have no wheels for Python 3.13 and later
LOWEST_READY := $(shell $(PYTHON) -c 'import sys; print("$(LOWEST)/.ready" if sys.version_info < (3, 13) else "")')

# tests start some dozens of processes: modules are compiled once for all of them, whatever the shell says
export PYTHONDONTWRITEBYTECODE :=

# a worker a core, each with one thread (tests/conftest.py)
PYTEST := $(BIN)/python -m pytest --numprocesses=auto --maxprocesses=8 --dist=worksteal

.PHONY: setup demo test test-quick test-lowest test-interpreted test-single-cell test-browser test-wheel dist check lint bench attack pictures docs clean warm

setup: $(READY)  ## the environment, with all extras

$(READY): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Setting up $(VENV) (a minute or two) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)

demo: setup  ## learns a process with known truth from snapshots: a picture and a report in demo/
	@$(BIN)/ordiff demo --out demo

check: setup $(LOWEST_READY)  ## ruff, mypy, import-linter, one fit with the lowest versions, pytest
	@$(MAKE) --no-print-directory --jobs=2 warm lint test-lowest  # each of them takes one core
	$(PYTEST)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

warm: setup  # the compiled loops, once for all workers of pytest (tests/processes.py)
	@NUMBA_CACHE_DIR=.numba_cache/shared $(BIN)/python tests/warm.py

test: check

test-quick: warm  ## without the tests that take more than a few seconds
	$(PYTEST) -m "not slow"

test-interpreted: setup  ## the tests of the core with the compiled loops as plain Python
	$(BIN)/python -m pytest tests/test_interpreted.py

test-lowest: $(LOWEST_READY)  ## an operator and a fit with the lowest versions that pyproject.toml allows
ifdef LOWEST_READY
	NUMBA_CACHE_DIR=$(LOWEST)/numba $(LOWEST)/bin/python tests/smoke.py
else
	@echo "The lowest versions are not tested: they need Python 3.11 or 3.12."
endif

$(LOWEST)/.ready: pyproject.toml constraints-lowest.txt
	@test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	@echo "Setting up $(LOWEST) ..."
	@$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints-lowest.txt --editable .
	@touch $@

test-single-cell: $(SINGLE_CELL)/.ready  ## scanpy and CellRank, in an environment of their own
	$(SINGLE_CELL)/bin/python -m pytest tests/single_cell

$(SINGLE_CELL)/.ready: pyproject.toml constraints-single-cell.txt
	@test -x $(SINGLE_CELL)/bin/python || $(PYTHON) -m venv $(SINGLE_CELL)
	@echo "Setting up $(SINGLE_CELL) (a few minutes) ..."
	@$(SINGLE_CELL)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints-single-cell.txt \
		--editable '.[single-cell]' scanpy cellrank dask zarr pytest hypothesis
	@touch $@

test-browser: setup  ## the report in a headless browser: installs Debian's chromium where it can
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || { \
		echo "Installing chromium ..."; SUDO=$$(test "$$(id -u)" = 0 || command -v sudo); \
		$$SUDO apt-get update -qq && $$SUDO apt-get install -y -qq --no-install-recommends chromium >/dev/null; }
	ORDIFF_NEEDS_BROWSER=1 $(BIN)/python -m pytest tests/test_report.py -k browser

dist: setup  ## sdist and wheel in dist/
	@rm -rf dist
	$(BIN)/python -m hatchling build -d dist

test-wheel: dist  ## the wheel with its core dependencies alone, in an environment made for it (a few minutes)
	@rm -rf $(WHEEL)
	@$(PYTHON) -m venv $(WHEEL)
	@echo "Setting up $(WHEEL) ..."
	@$(WHEEL)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt dist/*.whl
	cd $(WHEEL) && bin/python ../tests/wheel.py ../README.md
	@$(WHEEL)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt matplotlib plotly
	cd $(WHEEL) && bin/ordiff demo --quick --quiet

bench: setup  ## the tables of benchmarks/RESULTS.md
	$(BIN)/python -m benchmarks.run

attack: setup  ## bad inputs, damaged files, interrupts, kills: a table of what comes of them (about 15 minutes)
	$(BIN)/python -m attack.run

pictures: setup  ## the figures of the pages in docs/images, by the code that stands there
	$(BIN)/python docs/figures.py

docs: setup  ## HTML in docs/_build
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "Wrote docs/_build/html/index.html"

clean:
	rm -rf $(VENV) $(SINGLE_CELL) $(LOWEST) $(WHEEL) dist docs/_build demo .mypy_cache .ruff_cache .pytest_cache .hypothesis .numba_cache
