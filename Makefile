# make run    install and run the product's main job
# make test   install and run all checks
# make help   the rest
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/installed
FLOWER := .venv-flower
PETALS := $(FLOWER)/installed
BLOOM  := $(FLOWER)/bin/python -m pytest -n 2 --dist worksteal -q tests/flower src/coalmine/adapters tests/docs -k 'flower or adapters'

.PHONY: run test flower versions faults lint calibrate zoo bench clean help

run: $(STAMP)  ## train and audit the quickstart, in runs/
	$(BIN)/coalmine run

test: $(STAMP) $(PETALS) lint  ## all checks; those of the Flower adapter in an environment of its own
	$(BIN)/pytest -n 2 --dist worksteal -q
	$(BLOOM)

flower: $(PETALS)  ## the checks of the Flower adapter alone
	$(BLOOM)

versions: $(STAMP)  ## the Flower adapter on old and new versions of flwr, each in an environment of its own
	$(BIN)/python benchmarks/flower_versions.py

faults: $(PETALS)  ## three faults of Flower applications, audited; writes docs/three-flower-faults.md
	$(FLOWER)/bin/python benchmarks/flower_faults.py

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
	rm -rf $(VENV) $(FLOWER) $(FLOWER)-versions build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

help:
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

# Flower needs older versions of a few packages. They lie in front of the main environment, which has all the others.
$(PETALS): $(STAMP) constraints-flower.txt
	$(PYTHON) -m venv $(FLOWER)
	$(BIN)/python -c "import sysconfig; print('import site; site.addsitedir(%r)' % sysconfig.get_path('purelib'))" \
	  > "$$($(FLOWER)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/main-environment.pth"
	$(FLOWER)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints-flower.txt 'flwr[simulation]'
	@touch $@
