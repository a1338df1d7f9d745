# Every target sets up what it needs: a virtual environment in .venv with Tandem and its tools.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# Most tests wait for processes that they have started; those of a file stay together, because they share trainings.
TWO_AT_A_TIME := --numprocesses 2 --dist loadscope

.PHONY: help setup demo serve test test-long peers quick lint docs gpu-check clean

help:
	@echo "make demo    watch a small Transformer learn to translate (about a minute, after the set-up)"
	@echo "make serve   translate in the browser with the demo's model (trains it first, if it is not there)"
	@echo "make test    linters, types and all tests (fetches 4 GB of other programs to test exports with)"
	@echo "make quick   the tests that take seconds"
	@echo "make test-long  hours of trials: hundreds of kills, a real Slurm, containers, long runs"
	@echo "make lint    ruff and mypy"
	@echo "make docs    build a small site from docs/ and the docstrings in build/site; every link is checked"
	@echo "make gpu-check  test the NVIDIA cards that are here for some minutes, and write gpu-check.md to send in"
	@echo "make clean   remove the virtual environment and caches"

setup: $(INSTALLED)

$(INSTALLED): pyproject.toml tandem/__init__.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || (echo "Tandem needs Python 3.11 or newer; set PYTHON=..." && exit 1)
	@echo "setting up $(VENV) (a few minutes the first time)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[dev]'
	@touch $(INSTALLED)

demo: $(INSTALLED)
	$(BIN)/tandem demo

# Opens a browser where there is one.
serve: $(INSTALLED)
	@test -d demo/run/best || $(BIN)/tandem demo
	$(BIN)/tandem serve demo/run --open

test: lint peers
	$(BIN)/pytest $(TWO_AT_A_TIME)

# The programs that exports are made for, each in an environment of its own outside of the checkout.
peers: $(INSTALLED)
	@$(BIN)/python -m testbed.peer_environments

quick: $(INSTALLED)
	$(BIN)/pytest -m "not slow and not long" $(TWO_AT_A_TIME)

# One at a time: some of them watch what the whole machine does.
test-long: $(INSTALLED)
	$(BIN)/pytest -m long --timeout 7200

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.docs-installed
	$(BIN)/mkdocs build --strict --quiet
	@echo "open build/site/index.html"

$(VENV)/.docs-installed: $(INSTALLED)
	$(BIN)/pip install --quiet --editable '.[docs]'
	@touch $@

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
