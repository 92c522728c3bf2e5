# Everything is set up in .venv on first use; PYTHON names the interpreter that makes it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PLAN ?= plans/quickstart.yaml

.PHONY: study test bench gpu-check lint clean

study: $(VENV)/.local  ## lock the quickstart plan if it is not locked, run every arm, print the verdict
	test -e $(PLAN:.yaml=.lock) || $(BIN)/ablation plan lock $(PLAN)
	$(BIN)/ablation run --all --plan $(PLAN)
	$(BIN)/ablation verdict --plan $(PLAN)

test: $(VENV)/.dev  ## the whole test suite
	$(BIN)/python -m pytest

bench: $(VENV)/.dev  ## speed and memory, as ratios within one run
	$(BIN)/python -m tests.bench

gpu-check: $(VENV)/.dev  ## the local policy on this machine's GPU, in 6 minutes and without a download; in miniature on a CPU
	$(BIN)/python -m tests.gpu_check

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.local: $(VENV)/bin/python pyproject.toml .constraints.txt
	$(BIN)/python -m pip install --quiet --constraint .constraints.txt --editable '.[local]'
	touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml .constraints.txt tests/ties/requirements.txt
	$(BIN)/python -m pip install --quiet --constraint .constraints.txt --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --no-deps --requirement tests/ties/requirements.txt
	touch $@ $(VENV)/.local

clean:  ## remove the environment and caches, never a run
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis build *.egg-info
