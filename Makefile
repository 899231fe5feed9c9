# `make demo` shows what it does; `make check`, `make test` and `make test-more` test it. Each sets up what it needs in .venv: nothing but
# Python 3.11+ and make is required.
PYTHON ?= python3
JOBS ?= 2
GPU_EXTRA ?= gpu
BIN := .venv/bin
CACHE := $(CURDIR)/.numba
WARM := $(CACHE)/warm

.PHONY: demo page check test test-more test-gpu lint test-fast test-compiled test-slow test-many test-python test-bounds test-wheel bench clean

# SERVE=1 goes on to the page.
demo: .venv/.installed
	$(BIN)/everypair reproduce --quick --out report --save-model
	@$(if $(SERVE),$(MAKE) --no-print-directory page,echo "To look at what this model knows, in a browser: make page")

# What the model of the demo knows, to look at.
page: .venv/.serve
	@test -d report/model || { echo "There is no model yet: make demo"; exit 1; }
	$(BIN)/everypair serve report/model --open --log-level warning

# Lint, types and the fast tests, in about a minute: for people at work.
check: $(WARM) | .venv/.dev
	$(MAKE) --jobs=2 lint test-fast

# What must pass before a change is shared: lint, types, the whole suite on compiled kernels, the wheel.
test: .venv/.dev
	$(MAKE) --jobs=2 test-wheel test-compiled

# What takes longer and rarely finds more: the suite without compilation and with bounds checks, and the paper's tables.
test-more: .venv/.dev
	$(MAKE) test-slow
	$(MAKE) test-python
	$(MAKE) test-bounds

# On a machine with a GPU: the tests of GPUs on it, and the doctor's checks. Installs nothing if $(PYTHON) has all that they need, the
# package itself aside.
HAS_ALL := import click, cupy, hypothesis, narwhals, numba, pyarrow, pytest, safetensors, scipy, threadpoolctl, tqdm
ON_GPU = PYTHONPATH=src NUMBA_CACHE_DIR=$(CACHE)/gpu $$($(PYTHON) -c "$(HAS_ALL)" 2>/dev/null && echo $(PYTHON) || echo $(BIN)/python) -m
test-gpu:
	@$(PYTHON) -c "$(HAS_ALL)" 2>/dev/null || $(MAKE) .venv/.gpu
	EVERYPAIR_TEST_GPU=1 $(ON_GPU) pytest -q tests/gpu
	$(ON_GPU) everypair.cli doctor --gpu

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright --pythonpath $(BIN)/python

PYTEST := $(BIN)/python -m pytest -q --numprocesses=$(JOBS) --dist=worksteal

# Four examples of each property; without the tests that need long even if compiled, and without those of GPUs and shards, whose kernels
# and processes "make test" looks at.
test-fast: $(WARM) | .venv/.dev
	HYPOTHESIS_PROFILE=small NUMBA_CACHE_DIR=$(WARM) $(PYTEST) tests -m "not full and not more" --ignore=tests/gpu --ignore=tests/cluster

# With the examples in docstrings.
test-compiled: lint $(WARM)
	NUMBA_CACHE_DIR=$(WARM) $(PYTEST) tests src --doctest-modules -m "not more"

# The tests that are marked "more".
test-slow: $(WARM) | .venv/.dev
	NUMBA_CACHE_DIR=$(WARM) $(PYTEST) tests -m more

# A search for counterexamples: a hundred examples of each property instead of 25.
test-many: $(WARM) | .venv/.dev
	HYPOTHESIS_PROFILE=many NUMBA_CACHE_DIR=$(WARM) $(PYTEST) tests -m hypothesis

# Smaller, with the kernels as plain Python: what coverage sees.
test-python: .venv/.dev
	NUMBA_DISABLE_JIT=1 $(PYTEST) tests -m "not more" --cov --cov-report=term-missing:skip-covered --cov-fail-under=95

# Smaller, with every index checked. A cache of its own: a warm one would silently skip the checks. Without the tests of files, tables
# and commands: they reach no kernel that the others do not.
ABOVE := benchmarks cli compatibility data datasets evaluation/test_early_stopping.py evaluation/test_splits.py package persistence \
	recommend/test_archive.py recommend/test_encoders.py recommend/test_explain.py reproduce service tuning
test-bounds: $(WARM) | .venv/.dev
	NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=$(CACHE)/bounds $(PYTEST) tests $(ABOVE:%=--ignore=tests/%)

# Most kernels, compiled once before several processes need them. They share this cache.
# It is made anew when a file with kernels has changed: Numba does not notice changes of leaves in other files.
KERNELS := $(wildcard src/everypair/kernels/*.py) src/everypair/datasets/simulate.py src/everypair/reproduce/conventional.py
$(WARM): $(KERNELS) | .venv/.dev
	rm -rf $(CACHE)
	NUMBA_CACHE_DIR=$(WARM).part $(BIN)/everypair doctor --warm
	mv $(WARM).part $(WARM)
	touch $(WARM)

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

.venv/.gpu: .venv/.dev
	$(BIN)/python -m pip install --quiet -e ".[$(GPU_EXTRA)]"
	touch $@

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
