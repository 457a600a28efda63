# make run    install and run the product's main job
# make test   install and run all checks
# make help   the rest
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/installed

.PHONY: run test lint calibrate zoo bench clean help

run: $(STAMP)  ## train and audit the quickstart, in runs/
	$(BIN)/coalmine run

test: $(STAMP) lint  ## all checks
	$(BIN)/pytest -n 2 --dist worksteal -q

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

calibrate: $(STAMP)  ## the long calibration; writes docs/calibration.md
	$(BIN)/python benchmarks/calibrate.py --output docs/calibration.md

zoo: $(STAMP)  ## the examination of the bug zoo, at most 20 minutes; writes docs/zoo.md
	$(BIN)/python benchmarks/zoo.py

bench: $(STAMP)  ## ratios against the naive way; writes JSON to benchmarks/results
	$(BIN)/python benchmarks/gaussian_pairs.py
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/canaries.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/audit_cost.py

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

help:
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@
