# Everything a newcomer or a continuous-integration job needs. `make` alone lists the targets.
#
# The first call makes .venv and installs into it. Variables for the command line:
#   PYTHON=python3.12           the Python to build .venv with (3.11 or newer)
#   TORCH_INDEX=URL             take torch from this index; empty: from PyPI, as plain pip does
#   TORCH_FIND_LINKS=FOLDER     take torch from a folder of wheels
#   LOCKED=1                    install exactly the versions in requirements/, with hash checks
# Without these, Linux without an NVIDIA GPU takes torch's CPU build. To change the build later, `make clean` first.

PYTHON ?= $(or $(shell for python in python3.11 python3 python3.12 python3.13; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; \
	done),python3)
BIN := .venv/bin
export LOCKED
INPUTS ?= 20000
KILLS ?= 200
SEED ?= 0

.DEFAULT_GOAL := help
.PHONY: help venv demo docs test test-slow test-kernels test-browser fuzz soak lint types format lock audit clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{printf "%-18s %s\n", $$1, $$2}'

venv: ## create, complete or repair .venv (every other target does this first)
	@$(PYTHON) .ci/setup_venv.py

demo: venv ## local prior matching from raw audio to a table of word error rates
	@$(BIN)/priormatch demo

docs: venv ## docs/ as a site, in site/
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet docs site

test: lint types ## lint, types and tests, on all cores
	$(BIN)/python -m pytest --numprocesses auto

test-slow: venv ## the tests that take more than a few seconds
	$(BIN)/python -m pytest -m slow

test-kernels: venv ## the tests of the GPU kernels in Triton's interpreter, which is installed first
	$(BIN)/python -m pip install --quiet "triton>=3.9"
	TRITON_INTERPRET=1 $(BIN)/python -m pytest tests/kernels

test-browser: venv ## the tests that open pages in Chromium, which is installed first if possible
	@.ci/get_browser $(BIN)
	$(BIN)/python -m pytest -m browser

fuzz: venv ## the fuzz tests, with INPUTS=20000 inputs each
	FUZZ_INPUTS=$(INPUTS) $(BIN)/python -m pytest tests/fuzz -m "slow or not slow" --timeout 7200

soak: venv ## kill a small run KILLS=200 times at random moments (SEED=0); the result must be that of an undisturbed run
	$(BIN)/python tests/soak/soak.py --kills $(KILLS) --seed $(SEED)

lint: venv ## ruff: rules and format
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .

types: venv ## mypy
	$(BIN)/python -m mypy

format: venv ## reformat the code and apply ruff's automatic fixes
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

lock: ## resolve the dependencies again into requirements/*.lock; needs the network
	@$(PYTHON) .ci/lock.py

audit: ## look up known vulnerabilities of the locked dependencies; needs the network, not part of the tests
	@$(PYTHON) .ci/audit.py

clean: ## remove .venv, caches and built packages; runs/ and data/ stay
	rm -rf .venv dist build site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
