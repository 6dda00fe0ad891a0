# The two commands: `make demo` shows it at work on this machine, `make test` tests it. `make help` lists all.

PYTHON ?= python3
VENV := .venv
# Tests that run at the same time, each process with hosts and a Slurm of its own: they mostly wait.
WORKERS ?= 9
# A machine that stands still for a second fails one test in ten thousand: it is run again, and named at the end.
AGAIN ?= 2
BIN := $(VENV)/bin
FRAMEWORKS := .venv-frameworks
SOURCES := pyproject.toml hatch_build.py README.md LICENSE \
	$(shell find mingle_hooks templates docs packaging/wheels -type f -not -name '*.pyc')
# Other users of a test host run this installation too, whatever the umask of the one who makes it.
# packaging/wheels has netifaces in pure Python: the one on an index needs a compiler.
INSTALL := umask 022 && $(BIN)/python -m pip install --quiet --find-links packaging/wheels
NOT_INSTALLED := { echo '!!! NOT INSTALLED: pip could not; it takes a package index' >&2; exit 1; }
# Without a network pip is not to try for a minute.
export PIP_RETRIES ?= 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# What the system lacks comes before what is made with it: in the order in which it is written, with -j too.
.NOTPARALLEL:
# pip is to compile what it installs: every start of `mingle` counts.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-16s %s\n", $$1, $$2}'

.PHONY: demo
demo: $(VENV)/.installed ## run the main job on this machine: several local nodes, one world, a real all-reduce
	@$(BIN)/python examples/demo.py

.PHONY: test
test: tools $(VENV)/.test torch ## run all tests (ARGS='-k slurm'); as root on Debian it installs what they need first
	$(BIN)/pytest --numprocesses=$(WORKERS) --reruns=$(AGAIN) $(ARGS)

.PHONY: quick
quick: $(VENV)/.test ## run the tests without test hosts and schedulers, as any user: two minutes on two processors
	$(BIN)/pytest --numprocesses=2 --quick $(ARGS)

.PHONY: mutants
SAMPLE ?= 30
mutants: $(VENV)/.test ## break the package in SAMPLE places, one at a time, and count what the tests notice (SEED=1 JOBS=2)
	$(BIN)/python benchmarks/mutants.py --sample $(SAMPLE) --jobs $(JOBS) $(if $(filter-out 0,$(SEED)),--seed $(SEED)) $(ARGS)

.PHONY: chaos
SCHEDULES ?= $(if $(HOSTS),2000,100000)
SEED ?= 0
# Sets of hosts mostly wait.
JOBS ?= $(if $(HOSTS),$(shell echo $$((4 * $$(nproc)))),$(shell nproc))
chaos: $(if $(HOSTS),tools) $(VENV)/.installed ## simulated meetings with everything that goes wrong, from SEED on (SCHEDULES=100000 SEED=0 JOBS=2); real ones with HOSTS=3
	@cd tests && ../$(BIN)/python -m $(if $(HOSTS),chaos --hosts $(HOSTS),simulator) --schedules $(SCHEDULES) --from $(SEED) --jobs $(JOBS)

.PHONY: fuzz
SECONDS ?= 600
fuzz: $(VENV)/.fuzz ## feed every decoder by coverage with what breaks others, each for SECONDS (TARGETS='job_script check' JOBS=2 SEED=1)
	@cd tests && ../$(BIN)/python -m fuzz $(TARGETS) --seconds $(SECONDS) --jobs $(JOBS) --seed $(SEED) $(ARGS)

.PHONY: cluster
cluster: tools $(VENV)/.installed ## a shell on four hosts with a real Slurm, to play with; gone at its end (WHO=root)
	@cd tests && ../$(BIN)/python -m cluster $(WHO)

# NVRx brings a pynvml at whose import torch warns: tests that import torch want an environment without it.
PEERS ?=
.PHONY: bench
bench: tools $(VENV)/.test torch ## measure speed and size, and compare with the limits (ARGS=peers PEERS=1: beside other tools)
ifneq ($(PEERS),)
	@tests/setup/packages.sh openmpi-bin mpich
	@$(INSTALL) '.[peers]' || $(NOT_INSTALLED)
endif
	@$(BIN)/python -m benchmarks $(ARGS)

.PHONY: frameworks
frameworks: tools ## train with every framework on three hosts, bare and under Slurm, and write docs/frameworks.md (ARGS=networks: docs/networks.md)
	@TORCH='$(TORCH)' PYTHON='$(PYTHON)' tests/setup/frameworks.sh $(FRAMEWORKS)
	@cd tests && ../$(FRAMEWORKS)/bin/python -m frameworks $(ARGS)

.PHONY: lint
lint: $(VENV)/.dev ## check style, format and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

.PHONY: man
man: $(VENV)/.installed ## make the manual pages in docs/man anew, from the help of the commands
	$(BIN)/python packaging/man.py docs/man

.PHONY: site
site: $(VENV)/.docs ## build README.md and docs/ as a site with search in build/site (REPOSITORY=https://…/blob/main for links to files)
# Not --quiet: with it mkdocs counts no warnings, and --strict lets every mistake pass.
	@REPOSITORY='$(REPOSITORY)' NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo 'build/site: look at it with  $(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site'

# What runs mingle where the .deb or .rpm is installed: the name of a package that has /usr/bin/NAME, 3.10 or later.
SYSTEM_PYTHON ?= python3
.PHONY: packages
packages: $(VENV)/.test ## make sdist, wheel, mingle.pyz, offline bundle, .deb and .rpm in dist/
	$(BIN)/python packaging/build.py dist
	$(BIN)/python packaging/system.py dist $(SYSTEM_PYTHON)

.PHONY: clean
clean: ## remove what make made
	rm -rf $(VENV) $(FRAMEWORKS) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: tools
tools:
	@tests/setup/debian.sh '$(PYTHON)' $(VENV)

.PHONY: torch
torch: $(VENV)/.test
	@umask 022 && TORCH='$(TORCH)' tests/setup/torch.sh $(BIN)/python

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or later is needed: make PYTHON=python3.11 …")'
	umask 022 && $(PYTHON) -m venv $(VENV)
# From pip 26 on, the script that starts `mingle` does without an import that takes 5 ms.
	@$(INSTALL) --upgrade pip || echo '!!! NOT UPGRADED: pip; it goes on' >&2

# Each stamp is one set of extras. They install the project itself, not a link to it, as its users do.
$(VENV)/.installed: $(VENV)/bin/python $(SOURCES)
	$(INSTALL) . || $(NOT_INSTALLED)
	@touch $@

$(VENV)/.test: $(VENV)/bin/python $(SOURCES)
	$(INSTALL) '.[test,docs]' || $(NOT_INSTALLED)
	@touch $@ $(VENV)/.installed $(VENV)/.docs

# atheris has wheels for some Pythons only, and takes a compiler of its own elsewhere.
$(VENV)/.fuzz: $(VENV)/bin/python $(SOURCES)
	$(INSTALL) --only-binary=atheris '.[test,fuzz]' || { echo '!!! NOT INSTALLED: atheris; it needs an index and a Python with a wheel: make fuzz VENV=.venv-fuzz PYTHON=python3.11' >&2; exit 1; }
	@touch $@ $(VENV)/.installed

$(VENV)/.dev: $(VENV)/bin/python $(SOURCES)
	$(INSTALL) '.[dev]' || $(NOT_INSTALLED)
	@touch $@ $(VENV)/.test $(VENV)/.docs $(VENV)/.installed

$(VENV)/.docs: $(VENV)/bin/python $(SOURCES)
	$(INSTALL) '.[docs]' || $(NOT_INSTALLED)
	@touch $@ $(VENV)/.installed
