# Everything a contributor or CI runs. A bare machine needs python3 (3.11 or newer) and make;
# `make test` does the rest inside .venv. Paths are relative, so the checkout may live anywhere.

PYTHON ?= python3
SEEDS ?= 2000
SAMPLE ?= 200
MINUTES ?= 60
# The tests wait for processes much of the time, so two workers more than cores keep all cores busy.
WORKERS := $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 2)')
PYTEST_ARGS ?= -n $(WORKERS) --dist worksteal

VENV := .venv
GROUP := dev
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet
STAMP := $(VENV)/.installed
DEMO := $(VENV)/.installed-for-demo
# The second CLI that is supported and tested; the newest one comes with the dev group.
OLDER := .clis/2.1.197
# The type declarations of the official packages, which `make surface` compares with.
DECLARATIONS := .clis/declarations
SOURCES := src tests tools bench examples

# The caller's import path must not decide what is tested.
unexport PYTHONPATH
# Without compiled files, every process that a test starts compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE
# The pinned pyright is the one we want; its wrapper need not say that there is a newer one.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-fleet test test-all collect longer pythons on-python steady check lint types mypy pyright unit soak simulate fuzz mutate bench micro surface drift docs cov fmt lock clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 12

test:  ## what to run before every commit: about six minutes on two cores
	$(MAKE) -j 2 lint types collect
	$(MAKE) unit

# In a fresh checkout, each worker would compile all test files.
collect: $(STAMP)
	@$(PY) -m pytest --collect-only --quiet --quiet --quiet

# `make test test-all` runs the tests of `make test` once.
test-all: test  ## everything: also the older CLI, all programs and pages, and each Python that is here
	$(PY) -m pyright
	$(MAKE) longer simulate pythons

longer: $(STAMP) $(OLDER) $(DECLARATIONS)  ## the tests that only `make test-all` runs
	$(PY) -m pytest $(PYTEST_ARGS) -m longer

pythons: $(STAMP)  ## the tests of sessions on each other Python that is here
	@set -e; found=$$($(PY) tools/pythons.py); for one in $$found; do \
	    $(MAKE) on-python VENV=.venv-$${one%%=*} PYTHON=$${one#*=} GROUP=session; \
	done

on-python: $(STAMP)
	$(PY) -m pytest $(PYTEST_ARGS) -m "not longer" tests/unit tests/shell tests/simulation tests/real/test_tour.py

steady: $(STAMP) $(OLDER) $(DECLARATIONS)  ## the tests of `make test` three times, beside eight busy processes
	$(PY) tools/steady.py --times 3 --load 8 -- $(PY) -m pytest $(PYTEST_ARGS) -m "not longer"

# The tour needs Bridle and a CLI and none of the tools; `make setup` installs all of them.
demo: $(if $(wildcard $(STAMP)),$(STAMP),$(DEMO))  ## a tour on the real CLI: offline, without a key
	@$(PY) -m bridle demo

demo-fleet: $(STAMP)  ## three workers of a fleet, a kill and a take-over: offline, without a key
	@$(PY) -m bridle.cli._demo.fleet_demo

setup: $(STAMP) $(OLDER) $(DECLARATIONS)  ## .venv with the pinned tools, Bridle itself and the CLIs to test on

define environment
@$(PYTHON) -c 'import sys; sys.exit("Bridle needs Python 3.11 or newer: make PYTHON=/path/to/python3" if sys.version_info < (3, 11) else 0)'
$(PYTHON) -m venv $(VENV)
endef

$(DEMO): pyproject.toml constraints.txt
	@echo "Bridle and the Claude Code CLI are installed into $(VENV); this takes a minute or so."
	$(environment)
	$(PIP) install --constraint constraints.txt --editable '.[cli]'
	@touch $@

# --group needs a pip newer than the one python3 may bring along, so pip comes first.
$(STAMP): pyproject.toml constraints.txt
	$(environment)
	$(PIP) install --upgrade --constraint constraints.txt pip
	$(PIP) install --constraint constraints.txt --group $(GROUP) --editable .
	@touch $@

$(OLDER): | $(STAMP)
	@mkdir -p .clis
	$(PY) tools/fetch_cli.py $(notdir $@) $(dir $@)

$(DECLARATIONS): tools/surface.toml | $(STAMP)
	@mkdir -p .clis
	$(PY) tools/fetch_declarations.py

lint: $(STAMP)  ## format, lint rules, import contracts, generated modules
	$(PY) -m ruff format --check $(SOURCES)
	$(PY) -m ruff check $(SOURCES)
	$(VENV)/bin/lint-imports --no-logo
	$(PY) tools/build_sync.py --check

types: mypy pyright  ## mypy and pyright, both strict; what only newer Pythons run, too

mypy: $(STAMP)
	$(PY) -m mypy

pyright: $(STAMP)
	$(PY) -m pyright src tests/typing
	$(PY) -m pyright --pythonversion 3.13 src/bridle/_runtime/tasks.py

check: lint types  ## the quick tier, for editing: lint, types, unit and property tests
	$(PY) -m pytest $(PYTEST_ARGS) -q tests/unit tests/property tests/wire

unit: $(STAMP) $(OLDER) $(DECLARATIONS)  ## the tests of `make test`; PYTEST_ARGS=... to choose
	$(PY) -m pytest -m "not longer" $(PYTEST_ARGS)

soak: $(STAMP) $(OLDER)  ## hundreds of sessions that leave nothing behind; programs for the official SDK run twice
	BRIDLE_SOAK=1 $(PY) -m pytest $(PYTEST_ARGS) tests/soak tests/leaks tests/compat

simulate: $(STAMP)  ## seeded simulation of the engine; SEEDS=100000 for a long one
	$(PY) -m tests.simulation.run --seeds $(SEEDS)

fuzz: $(STAMP)  ## coverage-guided fuzzing of the decoder and the engine (Linux)
	$(PIP) install --group fuzz
	@set -e; for target in tests/fuzz/fuzz_*.py; do echo "== $$target"; $(PY) "$$target" -max_total_time=60; done
	$(PY) tests/fuzz/engine_fuzz.py --lines 300000

mutate: $(STAMP)  ## change the core and list the changes that no test notices; SAMPLE=500 for more, MINUTES=10 for less time
	$(PIP) install --group mutate
	$(PY) tools/mutate.py --sample $(SAMPLE) --minutes $(MINUTES)

bench: $(STAMP)  ## side by side with the official SDK; QUICK=1 for a glance, BENCH_ARGS=... to choose
	$(PY) -m bench $(if $(QUICK),--quick) $(BENCH_ARGS)

micro: $(STAMP)  ## what single parts cost: bench/micro
	@set -e; for program in bench/micro/*.py; do echo "== $$program"; $(PY) "$$program"; done

surface: $(STAMP) $(OLDER) $(DECLARATIONS)  ## what the official packages have and Bridle lacks; NEWEST=1 for their newest versions
	$(PY) tools/surface.py $(if $(NEWEST),--newest)

# It installs into .drift and changes nothing else; DRIFT_ARGS=--short leaves out the long suites.
drift: $(STAMP) $(OLDER) $(DECLARATIONS)  ## what the newest CLI breaks or changes -> .drift/report.md
	$(PY) tools/drift.py $(DRIFT_ARGS)

# No connection is made, and reading the site makes none either.
docs: $(STAMP) $(OLDER) $(DECLARATIONS)  ## the documentation, with its generated parts made anew -> site/
	$(PY) tools/build_docs.py
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build

cov: $(STAMP)  ## branch coverage, in one process
	$(PY) -m coverage run -m pytest -p no:xdist
	$(PY) -m coverage report

fmt: $(STAMP)  ## apply format and safe fixes
	$(PY) -m ruff format $(SOURCES)
	$(PY) -m ruff check --fix $(SOURCES)

lock: $(STAMP)  ## newest versions the groups allow -> constraints.txt
	$(PIP) install --upgrade --upgrade-strategy eager pip --group dev --editable .
	{ echo '# Exact versions of everything `make` installs. Written by `make lock`; do not edit.'; \
	  $(PY) -m pip freeze --all --exclude-editable --exclude setuptools; } > constraints.txt

clean:  ## back to a bare checkout
	rm -rf $(VENV) .venv-* .clis .drift build dist site .coverage htmlcov .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
