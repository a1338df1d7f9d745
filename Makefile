# Every target sets up what it needs, in a virtual environment in .venv: Tandem for those who use it, and its tools for
# those who work on it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DEVELOPING := $(VENV)/.installed-dev
# Everything but PyTorch comes in the versions of a lock file, each file known by its hash; see docs/dependencies.md.
FROM_LOCK := $(BIN)/pip install --quiet --require-hashes --no-deps --requirement
TANDEM_ITSELF := $(BIN)/pip install --quiet --no-build-isolation --editable
# What makes lock files and looks for known holes, in an environment of its own.
TOOLS := build/lock-tools
LOCK := $(TOOLS)/bin/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --quiet \
	--no-annotate --no-emit-package torch --custom-compile-command "make lock"
# Most tests wait for processes that they have started; those of a file stay together, because they share trainings, and
# files come in the order of tests/conftest.py: the longest first.
TWO_AT_A_TIME := --numprocesses 2 --dist loadscope --no-loadscope-reorder

.PHONY: help install setup demo serve test test-long peers quick lint docs lock audit gpu-check clean

help:
	@echo "make install  set up .venv with Tandem for those who use it"
	@echo "make demo    watch a small Transformer learn to translate (about a minute, after the set-up)"
	@echo "make serve   translate in the browser with the demo's model (trains it first, if it is not there)"
	@echo "make test    linters, types and all tests (fetches 2.5 GB of other programs to test exports with)"
	@echo "make quick   the tests that take seconds"
	@echo "make test-long  hours of trials: hundreds of kills, a real Slurm, containers, long runs"
	@echo "make lint    ruff and mypy"
	@echo "make docs    build a small site from docs/ and the docstrings in build/site; every link is checked"
	@echo "make gpu-check  test the NVIDIA cards that are here for some minutes, and write gpu-check.md to send in"
	@echo "make audit   ask a public database for known holes in the locked versions"
	@echo "make lock    write the lock files anew, after a change of dependencies"
	@echo "make clean   remove the virtual environment and caches"

install: $(INSTALLED)

setup: $(DEVELOPING)

$(INSTALLED): pyproject.toml requirements.lock tandem/__init__.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || (echo "Tandem needs Python 3.11 or newer; set PYTHON=..." && exit 1)
	@echo "setting up $(VENV) (a few minutes the first time)"
	$(PYTHON) -m venv $(VENV)
	$(FROM_LOCK) requirements.lock
	$(TANDEM_ITSELF) '.[export,serve]'
	@touch $(INSTALLED)

$(DEVELOPING): $(INSTALLED) requirements-dev.lock
	@echo "adding the tools that work on Tandem"
	$(FROM_LOCK) requirements-dev.lock
	$(TANDEM_ITSELF) '.[dev,docs]'
	@touch $(DEVELOPING)

demo: $(INSTALLED)
	$(BIN)/tandem demo

# Opens a browser where there is one.
serve: $(INSTALLED)
	@test -d demo/run/best || $(BIN)/tandem demo
	$(BIN)/tandem serve demo/run --open

test: lint peers
	$(BIN)/pytest $(TWO_AT_A_TIME)

# The programs that exports are made for, each in an environment of its own outside of the checkout.
peers: $(DEVELOPING)
	@$(BIN)/python -m testbed.peer_environments

quick: $(DEVELOPING)
	$(BIN)/pytest -m "not slow and not long" $(TWO_AT_A_TIME)

# One at a time: some of them watch what the whole machine does.
test-long: $(DEVELOPING)
	@$(BIN)/python -m testbed.peer_environments transformers-4 libretranslate eole skypilot kubeflow
	$(BIN)/pytest -m long --timeout 7200

lint: $(DEVELOPING)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(DEVELOPING)
	$(BIN)/mkdocs build --strict --quiet
	@echo "open build/site/index.html"

lock: $(TOOLS)
	$(LOCK) --extra export --extra serve --output-file requirements.lock
	$(LOCK) --extra dev --extra docs --constraint requirements.lock --output-file requirements-dev.lock

# Markers are those of this machine. PyTorch is asked for by its version, as the lock does not have it.
audit: $(TOOLS)
	@sed -n 's/^  "torch~=\(.*\)",/torch==\1/p' pyproject.toml > $(TOOLS)/torch.txt
	$(TOOLS)/bin/pip-audit --strict --disable-pip --no-deps --requirement $(TOOLS)/torch.txt
	$(TOOLS)/bin/pip-audit --strict --disable-pip --require-hashes --requirement requirements-dev.lock

$(TOOLS):
	$(PYTHON) -m venv $@
	$@/bin/pip install --quiet uv==0.13.8 pip-audit

# One process for each card. (Make itself ends with 2, whatever code the test ends with.)
gpu-check: $(INSTALLED)
	@cards=$$($(BIN)/python -c 'import torch; print(torch.cuda.device_count())'); \
	if [ "$$cards" -gt 1 ]; then \
		$(BIN)/torchrun --standalone --nproc-per-node "$$cards" -m tandem -- doctor --self-test; \
	else \
		$(BIN)/tandem doctor --self-test; \
	fi

clean:
	rm -rf $(VENV) build demo .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
