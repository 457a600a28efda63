# make run    install and run the product's main job
# make test   install and run all checks
# make check  the quick ones, at most 3 minutes
# make help   the rest
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/installed
FLOWER := .venv-flower
FLOWER_STAMP := $(FLOWER)/installed
FLOWER_TESTS := $(FLOWER)/bin/python -m pytest -n 2 --dist worksteal -q tests/flower src/coalmine/adapters tests/docs -k 'flower or adapters'
TESTS  := $(BIN)/pytest -n 2 --dist worksteal -q
FAST   := tests/unit tests/contracts tests/test_architecture.py
LINT   := 'ruff check' '$(BIN)/ruff check .' 'ruff format' '$(BIN)/ruff format --check .' mypy '$(BIN)/mypy'

.PHONY: run test check flower versions faults lint calibrate zoo conformance bench clean help

run: $(STAMP)  ## train and audit the quickstart, in runs/
	$(BIN)/coalmine run

test: $(STAMP)  ## all checks, one after the other even if one fails; the Flower adapter in an environment of its own
	@.ci/each $(LINT) tests '$(TESTS)' 'tests with Flower' '$(MAKE) --no-print-directory flower'

check: $(STAMP)  ## ruff, mypy and the quick tests, at most 3 minutes
	@.ci/each $(LINT) 'quick tests' '$(TESTS) $(FAST)'

flower: $(FLOWER_STAMP)  ## the checks of the Flower adapter alone
	$(FLOWER_TESTS)

versions: $(STAMP)  ## the Flower adapter on old and new versions of flwr, each in an environment of its own
	$(BIN)/python benchmarks/flower_versions.py

faults: $(FLOWER_STAMP)  ## three faults of Flower applications, audited; writes docs/three-flower-faults.md
	$(FLOWER)/bin/python benchmarks/flower_faults.py

lint: $(STAMP)  ## ruff and mypy
	@.ci/each $(LINT)

calibrate: $(STAMP)  ## the long calibration; writes docs/calibration.md
	$(BIN)/python benchmarks/calibrate.py --output docs/calibration.md

zoo: $(STAMP)  ## audits of the whole bug zoo, at most 20 minutes; writes docs/zoo.md
	$(BIN)/python benchmarks/zoo.py

conformance: $(STAMP)  ## calibration of the tests of a mechanism; writes docs/conformance-calibration.md
	$(BIN)/python benchmarks/conformance.py

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
$(FLOWER_STAMP): $(STAMP) constraints-flower.txt
	$(PYTHON) -m venv $(FLOWER)
	$(BIN)/python -c "import sysconfig; print('import site; site.addsitedir(%r)' % sysconfig.get_path('purelib'))" \
	  > "$$($(FLOWER)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/main-environment.pth"
	$(FLOWER)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints-flower.txt 'flwr[simulation]'
	@touch $@
