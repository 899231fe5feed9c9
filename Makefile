# Two commands: `make demo` and `make test`. Each sets up what it needs in .venv; nothing but Python 3.11+ and make is required.
PYTHON ?= python3
BIN := .venv/bin
CACHE := $(CURDIR)/.numba

.PHONY: demo page check test test-more lint test-full test-python test-bounds test-wheel bench clean

# SERVE=1 goes on to the page.
demo: .venv/.installed
	$(BIN)/everypair reproduce --quick --out report --save-model
	@$(if $(SERVE),$(MAKE) --no-print-directory page,echo "To look at what this model knows, in a browser: make page")

# What the model of the demo knows, to look at.
page: .venv/.serve
	@test -d report/model || { echo "There is no model yet: make demo"; exit 1; }
	$(BIN)/everypair serve report/model --open --log-level warning

# What must pass on every machine: lint, types, the whole suite on compiled kernels, the wheel.
test: lint
	$(MAKE) test-full
	$(MAKE) test-wheel

# What takes longer: the suite without compilation, for coverage, and with every index checked; each keeps one core busy.
test-more:
	$(MAKE) --jobs=2 test-python test-bounds

# For people at work: lint, types, and the tests that are quick.
check: lint
	$(BIN)/python -m pytest tests -q -n 2 $(SLOW:%=--ignore=tests/%)

SLOW := benchmarks cli compatibility engine persistence recommend/test_update.py reproduce same service towers/test_towers.py towers/test_testing.py \
	tuning package/test_examples.py package/test_jax.py
lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright --pythonpath $(BIN)/python

# The whole suite and the examples in docstrings, on compiled kernels.
test-full: .venv/.dev
	$(BIN)/python -m pytest tests src --doctest-modules -q -n 2 --dist worksteal

# Smaller, with the kernels as plain Python: what coverage sees.
test-python: .venv/.dev
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest tests -q --cov --cov-report=term-missing:skip-covered --cov-fail-under=95

# Smaller, with every index checked. A cache of its own: a warm one would silently skip the checks. Without the tests of files, tables
# and commands: they reach no kernel that the others do not.
ABOVE := benchmarks cli compatibility data datasets evaluation/test_early_stopping.py evaluation/test_splits.py package persistence \
	recommend/test_archive.py recommend/test_encoders.py recommend/test_explain.py reproduce same service tuning
test-bounds: .venv/.dev
	NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=$(CACHE)/bounds $(BIN)/python -m pytest tests -q $(ABOVE:%=--ignore=tests/%)

# The wheel, in an empty environment with the core dependencies alone, runs the first example of the README and the command.
test-wheel: .venv/.dev
	rm -rf build/wheel && mkdir -p build/wheel
	$(BIN)/python -m build --wheel --outdir build/wheel .
	$(PYTHON) -m venv build/wheel/venv
	build/wheel/venv/bin/python -m pip install --quiet build/wheel/*.whl
	$(BIN)/python tests/support/first_example.py > build/wheel/example.py
	cd build/wheel && venv/bin/python -W error example.py
	cd build/wheel && venv/bin/everypair reproduce --quick --users 200 --items 150 --factors 4 --trials 1 > report.txt
	test -s build/wheel/report/index.html

# Command and options by BENCH, such as BENCH="quality --data DIR"; all of speed takes hours, BENCH="speed --quick" a minute.
BENCH ?= speed
bench: .venv/.bench
	$(BIN)/python -m benchmarks $(BENCH)

.venv/bin/python:
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'EveryPair needs Python 3.11 or later; set PYTHON=...')"
	$(PYTHON) -m venv .venv

.venv/.installed: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet -e .
	touch $@

.venv/.serve: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet -e ".[serve]"
	touch .venv/.installed $@

.venv/.dev: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet -e ".[dev]"
	touch .venv/.installed $@

# One by one: some need a compiler, and those that cannot be built are left out.
LIST_PEERS := import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["bench"], sep="\n")
.venv/.bench: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet -e ".[serve]"
	$(BIN)/python -c '$(LIST_PEERS)' | while read -r peer; do \
		$(BIN)/python -m pip install --quiet "$$peer" </dev/null || echo "left out: $$peer"; \
	done
	touch .venv/.installed $@

clean:
	rm -rf .venv .numba build dist .pytest_cache .ruff_cache .hypothesis
