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
# Two workers of pytest share two cores: libraries with threads of their own would only stand in each other's way.
ONE_THREAD := env OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
FLOWER_TESTS := $(ONE_THREAD) $(FLOWER)/bin/python -m pytest -n 2 --dist worksteal -q tests/flower src/coalmine/adapters tests/docs -k 'flower or adapters'
TESTS  := $(ONE_THREAD) $(BIN)/pytest -n 2 --dist worksteal -q --ignore=tests/machines
FAST   := tests/unit tests/contracts tests/test_architecture.py
LINT   := 'ruff check' '$(BIN)/ruff check .' 'ruff format' '$(BIN)/ruff format --check .' mypy '$(BIN)/mypy'

.PHONY: machines docs wheel pythons fuzz run test check flower versions faults lint calibrate zoo conformance bench clean help

run: $(STAMP)  ## train and audit the quickstart, in runs/
	$(BIN)/coalmine run

test: $(STAMP)  ## all checks, one after the other even if one fails; the Flower adapter in an environment of its own
	@.ci/each $(LINT) documentation '$(MAKE) --no-print-directory docs' wheel '.ci/wheel $(BIN)/python' tests '$(TESTS)' 'tests with Flower' '$(MAKE) --no-print-directory flower'

check: $(STAMP)  ## ruff, mypy and the quick tests, at most 3 minutes
	@.ci/each $(LINT) 'quick tests' '$(TESTS) $(FAST)'

flower: $(FLOWER_STAMP)  ## the checks of the Flower adapter alone
	$(FLOWER_TESTS)

machines: $(STAMP)  ## training on a Ray cluster of two nodes, on loopback
	$(BIN)/pytest -q tests/machines

versions: $(STAMP)  ## the Flower adapter on old and new versions of flwr, each in an environment of its own
	$(BIN)/python benchmarks/flower_versions.py

faults: $(FLOWER_STAMP)  ## three faults of Flower applications, audited; writes docs/three-flower-faults.md
	$(FLOWER)/bin/python benchmarks/flower_faults.py

docs: $(STAMP)  ## the documentation as a static site with search, in site/; links are checked
	NO_MKDOCS_2_WARNING=1 $(BIN)/python docs/site.py

wheel: $(STAMP)  ## wheel and sdist in dist/; the wheel, installed elsewhere, runs the smallest preset
	.ci/wheel $(BIN)/python

pythons: $(STAMP)  ## the quick tests on every Python from 3.11 to 3.13 that is found, each in an environment of its own
	$(BIN)/python benchmarks/pythons.py

fuzz: $(STAMP)  ## 10,000 hostile configurations, score files, results, checkpoints and run directories
	$(BIN)/python benchmarks/fuzz.py

lint: $(STAMP)  ## ruff and mypy
	@.ci/each $(LINT)

calibrate: $(STAMP)  ## the long calibration; writes docs/calibration.md
	$(BIN)/python benchmarks/calibrate.py --output docs/calibration.md

zoo: $(STAMP)  ## audits of the whole bug zoo, at most 20 minutes, from the runs on that there are; writes docs/zoo.md
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
	rm -rf $(VENV) $(FLOWER) $(FLOWER)-versions build dist site .venv-python-* .pytest_cache .mypy_cache .ruff_cache .hypothesis

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
