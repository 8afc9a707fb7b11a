# Two commands on a fresh machine with Python 3.11 or newer and a C++ compiler:
#
#     make run     judge the shipped kernels on this machine, print the table, write report.html
#     make test    lint, check types and layers, run the tests
#
# `make quick` runs unit tests for two minutes. `make corpus` judges hundreds of kernels that cheat, and of honest ones,
# for another ten minutes.
# All of them set up .venv first, with the interpreter that PYTHON names: `PYTHON=python3.12 make test`.
# A .venv that is there already is kept; `make clean` removes it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
RUNS := runs

# What `make run` judges; `make run BACKEND=./my_kernels DTYPE=f32` judges something else.
# Without a GPU Triton's interpreter runs the kernels, which takes long for all of them: make run SUITE=opinfo.
SUITE ?= $(shell command -v nvidia-smi >/dev/null 2>&1 && echo opinfo || echo smoke)
BACKEND ?= opsmith
DTYPE ?= bf16
RUN_OPTIONS ?=

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help venv run quick test lint types layers unit corpus differential mutants chaos campaigns format hooks clean
.DELETE_ON_ERROR:

help:  ## Show the targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 24

venv: $(STAMP)  ## Set up .venv, which the other targets do too

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "opsmith needs Python 3.11 or newer, $(PYTHON) is $$($(PYTHON) --version 2>&1): try PYTHON=python3.11 make"; exit 2; }
	@echo "== setup: $(VENV) with $$($(PYTHON) --version)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@# Bytecode is made where it is imported: of all 15,000 files it takes as long as the rest.
	@$(BIN)/python -m pip install --quiet --no-compile --editable '.[dev]'
	@touch $@

run: $(STAMP)  ## Judge the shipped kernels on this machine; writes report.html
	@out=$(RUNS)/$$(date -u +%Y%m%dT%H%M%SZ); \
	mkdir -p $(RUNS) && rm -f report.html; \
	status=0; \
	$(BIN)/opsmith run --suite $(SUITE) --backend $(BACKEND) --dtype $(DTYPE) --out $$out $(RUN_OPTIONS) || status=$$?; \
	if [ $$status -gt 1 ]; then exit $$status; fi; \
	ln -sfn $$(basename $$out) $(RUNS)/latest && cp $$out/report.html report.html && echo "report.html shows the run $$out"
# Status 1 says that an op was not answered or did not pass. That is a finding, which the table shows, and no failure
# of make. The device is a GPU where there is one: opsmith's own default.

lint: $(STAMP)  ## ruff: rules and formatting
	@echo "== ruff"
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --quiet --check

types: $(STAMP)  ## mypy, strict
	@echo "== mypy"
	@$(BIN)/mypy --no-error-summary

layers: $(STAMP)  ## import-linter: who may import whom
	@echo "== import-linter"
	@found=$$($(BIN)/lint-imports --no-logo 2>&1) || { echo "$$found"; exit 1; }

# A lane is a process of pytest. Three run beside each other, four with the corpus, the longest first, since tests often
# wait; what one prints is shown when it has ended.
UNIT := end-to-end parts judge compile kernels-a-to-c kernels-d-to-o kernels-p-to-z
QUICK := quick-one quick-two
CORPORA := corpus-hacks corpus-others
LANES := $(UNIT:%=lane-%) $(QUICK:%=lane-%) $(CORPORA:%=lane-%)
lane-end-to-end: PATHS := tests/e2e
JUDGE := $(addprefix tests/unit/,generate runner serve)
lane-judge: PATHS := $(JUDGE)
lane-parts: PATHS := $(addprefix --ignore ,tests/e2e tests/unit/kernels tests/unit/compile $(JUDGE))
lane-compile: PATHS := tests/unit/compile
lane-kernels-a-to-c: PATHS := tests/unit/kernels/test_[a-c]*.py
lane-kernels-d-to-o: PATHS := tests/unit/kernels/test_[d-o]*.py
lane-kernels-p-to-z: PATHS := tests/unit/kernels/test_[p-z]*.py
ONE := $(addprefix tests/unit/,backends compile dispatch evaluation report serve)
lane-quick-one: PATHS := $(ONE)
lane-quick-two: PATHS := tests/unit $(addprefix --ignore ,tests/unit/kernels $(ONE))
HACKS := $(addprefix tests/e2e/test_,cheats.py module_cheats.py service.py honest.py parallel.py)
lane-corpus-hacks: PATHS := $(HACKS)
lane-corpus-others: PATHS = $(filter-out $(HACKS),$(shell grep -rl --include='*.py' mark.corpus tests))
$(UNIT:%=lane-%): MARKS := not corpus
$(QUICK:%=lane-%): MARKS := not corpus and not slow
$(CORPORA:%=lane-%): MARKS := corpus

.PHONY: $(LANES)
$(LANES): export OMP_NUM_THREADS ?= 1
$(LANES): lane-%: $(STAMP)
	@echo "== pytest, $*"
	@.ci/lane $* -m "$(MARKS)" $(PATHS)

# $(call beside,TARGETS,HOW MANY AT A TIME)
beside = status=0; $(MAKE) --no-print-directory --jobs=$(2) --keep-going --output-sync=target $(1) || status=$$?; \
  $(BIN)/python .ci/flaky $(patsubst lane-%,%,$(filter lane-%,$(1))); exit $$status

quick: $(STAMP)  ## pytest: unit tests without kernels and slow ones, in two minutes on two cores
	@$(call beside,$(QUICK:%=lane-%),2)

ifdef PYTEST_OPTIONS
test: lint types layers unit
unit: export OMP_NUM_THREADS ?= 1
unit: $(STAMP)
	@$(BIN)/python -m pytest -q -m "not corpus" $(PYTEST_OPTIONS)
corpus: export OMP_NUM_THREADS ?= 1
corpus: $(STAMP)
	@$(BIN)/python -m pytest -q -m corpus $(PYTEST_OPTIONS)
else
ifdef CORPUS
test: lint
	@$(call beside,$(CORPORA:%=lane-%) $(UNIT:%=lane-%) types layers,4)
else
test: lint  ## Lint, check types and layers, run the tests but for the corpus; CORPUS=yes: with it
	@$(call beside,$(UNIT:%=lane-%) types layers,3)
endif

unit: $(STAMP)  ## pytest, without the corpus; with PYTEST_OPTIONS in one process
	@$(call beside,$(UNIT:%=lane-%),3)

corpus: $(STAMP)  ## Judge the corpus of reward hacks and of honest kernels, and every op
	@$(call beside,$(CORPORA:%=lane-%),2)
endif

# 677 OpInfos, 20,000 programs of which 1,000 go through Inductor, 270 problems and 8 models: hours on two cores. JOBS=16 says on
# how many processes. OpInfos that are done are kept if it is interrupted.
JOBS ?= 2
differential: export OMP_NUM_THREADS ?= 1
differential: $(STAMP)  ## Compare compiled graphs with eager mode on all that there is
	@mkdir -p $(RUNS)/differential
	@$(BIN)/python -m tests.differential.opinfo --jobs $(JOBS) --resume -o $(RUNS)/differential/opinfo.json
	@$(BIN)/python -m tests.differential.models --jobs $(JOBS) -o $(RUNS)/differential/models.json
	@$(BIN)/python -m tests.differential.programs --count 20000 --inductor 1000 --jobs $(JOBS) \
	  -o $(RUNS)/differential/programs.json

# One fault after another, for SECONDS with each database; PostgreSQL is that of Debian's package.
SEED ?= 1
SECONDS ?= 600
chaos: export OMP_NUM_THREADS ?= 1
chaos: $(STAMP)  ## Kill servers, fill disks and set clocks under thirty clients with hostile kernels; twenty minutes
	@out=$(RUNS)/chaos/$$(date -u +%Y%m%dT%H%M%SZ); status=0; for database in sqlite postgresql; do \
	  $(BIN)/python -m benchmarks.chaos.service --database $$database --seed $(SEED) --seconds $(SECONDS) \
	    -o $$out/$$database || status=1; \
	done; echo "$$out has the records"; exit $$status

campaigns: $(STAMP)  ## 2,000 simulated campaigns with budgets, kills and resumes
	@OPSMITH_SIMULATED_CAMPAIGNS=2000 $(BIN)/python -m pytest -q tests/unit/generate/test_simulated_campaigns.py

# Faults put into the plain references, the shipped kernels and the examples, one at a time: SAMPLE of them. What MUTANTS holds already is not
# judged again. HARNESS names a checkout of BackendBench where it is not installed.
SAMPLE ?= 300
MUTANTS ?= $(RUNS)/mutants
REFERENCES := benchmarks/mutants/references
mutants: export OMP_NUM_THREADS ?= 1
mutants: $(STAMP)  ## Measure the judge: which faults in kernels it sees, and the public harness
	@status=0; $(BIN)/opsmith mutants $(REFERENCES) opsmith examples/triton --dtype f32,bf16 --sample $(SAMPLE) --seed 1 \
	  $(if $(HARNESS),--harness $(HARNESS)) --jobs $(JOBS) -o $(MUTANTS) $(MUTANTS_OPTIONS) || status=$$?; \
	if [ $$status -gt 1 ]; then exit $$status; fi; echo "$(MUTANTS)/table.md has the table"

.PHONY: site lock
site: $(STAMP)  ## Build the documentation into site/, with links that lead somewhere
	@$(BIN)/python -m mkdocs build --strict --quiet --site-dir site

lock:  ## Pin what development needs, in requirements-dev.lock; needs uv
	@{ echo "# What .[dev] needs, pinned: pip install -r requirements-dev.lock -e . \`make lock\` writes this file."; \
	uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --quiet --no-header \
	  --no-emit-index-url --no-emit-find-links --no-annotate; } > requirements-dev.lock

format: $(STAMP)  ## Rewrite the tree as ruff wants it
	@$(BIN)/ruff check --quiet --fix-only
	@$(BIN)/ruff format

hooks: $(STAMP)  ## Install the git hooks
	@$(BIN)/pre-commit install

clean:  ## Remove what the other targets made, runs excepted
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis \
	  .coverage report.html
