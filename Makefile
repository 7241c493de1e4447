# Set-up, the demo, tests and checks. `make` alone lists the targets.
#   make setup PYTHON=python3.12        another interpreter
#   make demo STORE=/data/store         another store
#   make test ARGS="-k vocabulary"      anything else the program takes

STORE ?= store
PORT ?= 5000
ARGS ?=

BIN := .venv/bin
STAMP := .venv/.installed
SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3; do \
	$$python -c '$(SUPPORTED)' 2>/dev/null && echo $$python && break; done)

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-faults test-slow bench bench-full docs lint audit format clean mlflow

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP)  ## create .venv and install the project into it

# The stamp comes last: an interrupted install is taken up again, a finished one is not repeated.
# The exact pins keep torch and torchvision a matching pair, whatever other wheels pip is offered.
$(STAMP): pyproject.toml constraints.txt
	@python="$(PYTHON)"; $${python:-false} -c '$(SUPPORTED)' 2>/dev/null || { \
		echo "PYTHON=$${python:-(none found)}: Python 3.11, 3.12 or 3.13 is needed; name one with PYTHON=/path/to/it" >&2; \
		exit 1; }; \
	echo "Setting up .venv with $$python: the first time downloads some GB and takes a few minutes."; \
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $$python -m venv .venv
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e ".[cpu,dev,export,search]"
	@touch $@

demo: $(STAMP)  ## run the whole experiment at a small scale into STORE (default: store)
	$(BIN)/python pipelines/full.py demo --store $(STORE) $(ARGS)

test: $(STAMP)  ## run the tests, without the slow ones
	$(BIN)/python -m pytest -m "not slow and not faults" $(ARGS)

test-faults: $(STAMP)  ## run the tests on clusters of their own: jobs, intruders, workers, nodes and drivers killed
	$(BIN)/python -m pytest -m faults $(ARGS)

test-slow: $(STAMP)  ## run the tests that take minutes
	$(BIN)/python -m pytest -m slow $(ARGS)

bench: $(STAMP)  ## run the short benchmarks and write benchmarks/results.json; ARGS=--check only compares with it
	$(BIN)/python benchmarks/suite.py $(ARGS)

bench-full: $(STAMP)  ## run all benchmarks, which takes hours; ARGS names peers (benchmarks/against_peers.py)
	$(BIN)/python benchmarks/suite.py --full $(ARGS)

docs: $(STAMP)  ## build the documentation into site/; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lint: $(STAMP)  ## check style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pip check --disable-pip-version-check

# In an environment of its own, as it brings packages that are not pinned here.
audit: $(STAMP)  ## ask a public database for known weaknesses of the pinned packages; needs the internet
	@$(BIN)/python -m venv .venv/audit && .venv/audit/bin/python -m pip install -qq --retries 0 pip-audit 2>/dev/null || { \
		echo "pip-audit cannot be installed: this needs the internet" >&2; exit 1; }
	.venv/audit/bin/pip-audit --strict --progress-spinner off --no-deps --disable-pip -r constraints.txt

format: $(STAMP)  ## format the code and apply the safe fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove .venv, caches and build folders; the store stays
	rm -rf .venv site .pytest_cache .mypy_cache .ruff_cache build dist *.egg-info
	find bownet evaluation pipelines tests $(wildcard benchmarks) -name __pycache__ -type d -prune -exec rm -rf {} +

mlflow: $(STAMP)  ## show the runs of STORE in MLflow on 127.0.0.1:5000 (PORT=...)
	@test -f "$(STORE)/mlflow.db" || { \
		echo "STORE=$(STORE) holds no mlflow.db: run make demo first, or name another store" >&2; exit 1; }
	$(BIN)/mlflow ui --backend-store-uri sqlite:///$(STORE)/mlflow.db --host 127.0.0.1 --port $(PORT)
