# Each target sets up what it needs; the first one on a fresh machine downloads it.
PYTHON ?= python3
PIP_FLAGS ?=
BIN := .venv/bin
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt
# Else every process that a test starts compiles the package anew.
unexport PYTHONDONTWRITEBYTECODE

MINUTES ?= 5
FUZZ ?=
SEED ?= $(shell $(PYTHON) -c "import random; print(random.randrange(2**32))")

BUDGET ?= 540
DEVICE ?= cuda
TINY ?=
DATA ?= data
OUT ?= build/gpu

ENVS ?= build
TEST_FLAGS ?= -n auto --dist worksteal

.PHONY: demo explore test test-oldest test-newest fuzz fuzz-readers check test-all gpu docs format claims tables clean

demo: .venv/.study
	$(BIN)/torchcaps demo

# A page to play with, on this machine: networks that are trained already, one command.
explore: .venv/.explore
	$(BIN)/torchcaps explore

test: .venv/.test
	$(BIN)/python -m pytest -q $(TEST_FLAGS)

# The default tier with the lowest versions that pyproject.toml allows, and with the newest that there
# are, each where nothing else is installed. Where no CPU build of PyTorch is configured this is the
# normal one, of gigabytes; ENVS names a folder with room.
test-oldest test-newest: test-%:
	$(PYTHON) -m venv --clear $(ENVS)/$*
	if [ $* = oldest ]; then grep -oE '"[a-z0-9-]+>=[0-9.]+' pyproject.toml | sed 's/"//; s/>=/==/'; fi > $(ENVS)/$*/bounds.txt
	$(ENVS)/$*/bin/python -m pip install --disable-pip-version-check --progress-bar off $(PIP_FLAGS) -c $(ENVS)/$*/bounds.txt -e ".[test]" -e ./claims
	$(ENVS)/$*/bin/python -m pip freeze > $(ENVS)/$*/versions.txt
	$(ENVS)/$*/bin/python -m pytest -q $(TEST_FLAGS)

# Bad input and odd numbers, drawn from a seed that is printed: make fuzz MINUTES=60 SEED=1. With
# FUZZ=--lenient a number that is off is told, and is no failure.
fuzz: .venv/.test
	PYTHONPATH=tests $(BIN)/python -m fuzz --minutes $(MINUTES) --seed $(SEED) $(FUZZ)

# Files for readers, led by the code of ours that each comes to; then the lines that none came to.
fuzz-readers: .venv/.fuzz
	PYTHONPATH=tests $(BIN)/python -m fuzz.guided --minutes $(MINUTES) --seed $(SEED)

check: .venv/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

# The default tier and every slower one. Chromium comes from Debian unless CHROMIUM names another.
test-all: .venv/.all
	$(BIN)/python -m pytest -q -n auto --dist worksteal -m "not gpu"

# Tests, speed and studies on a GPU within BUDGET seconds, by the Python and the PyTorch that are there.
# The same line goes on; what it finds is in OUT. Without a GPU, make gpu DEVICE=cpu TINY=1 rehearses it.
gpu:
	$(PYTHON) benchmarks/gpu.py run --budget $(BUDGET) --device $(DEVICE) $(if $(TINY),--tiny) --root $(DATA) --out $(OUT)

# The pages of docs/ and the reference, as one site: build/docs/index.html. A warning is an error.
docs: .venv/.docs
	$(BIN)/python -m sphinx -q -W --keep-going -c docs -d build/doctrees . build/docs

# What is uploaded: a wheel and an sdist in dist/, checked, and the wheel tried where nothing else is.
dist: .venv/.dev
	rm -rf dist build/clean
	$(BIN)/python -m build --outdir dist > /dev/null
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python tests/wheel.py dist/*.whl dist/*.tar.gz
	$(PYTHON) -m venv build/clean
	build/clean/bin/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt "$$(ls dist/*.whl)[study]"
	build/clean/bin/python -m pip check
	rm -rf build/tried && mkdir build/tried
	cd build/tried && PATH="$(CURDIR)/build/clean/bin:$$PATH" sh ../../tests/wheel.sh

format: .venv/.dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Judge every claim that needs no trained network, by its test; then the pages out of all records.
claims: .venv/.test
	$(BIN)/python tests/claims/record.py
	$(BIN)/torchcaps study tables

# The pages out of records, and the index that the command line reads.
tables: .venv/.study
	$(BIN)/python -m torchcaps.tasks.index
	$(BIN)/torchcaps study tables
	$(BIN)/python claims/pages/findings/pictures.py

clean:
	rm -rf .venv build dist docs/reference docs/gallery-pictures torchcaps-demo .pytest_cache .mypy_cache .ruff_cache .import_linter_cache

.venv/.study .venv/.explore .venv/.test .venv/.fuzz .venv/.dev .venv/.docs: .venv/.%: pyproject.toml claims/pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(INSTALL) -e ".[$*]" -e ./claims
	touch $@

.venv/.all: .venv/.dev
	$(INSTALL) -e ".[dev,browser,cluster,docs,export,fuzz,slurm,tools]" -e ./claims
	test -n "$$CHROMIUM" || command -v chromium || (apt-get update -qq && apt-get install -y -qq chromium)
	touch $@
