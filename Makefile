# `make serve` and `make test` need a Python >= 3.11 and nothing else: each first makes .venv and
# installs into it what is missing. `make help` lists the rest.

MODEL  ?= mini
PORT   ?= 8000
ARGS   ?=
PYTHON ?=

VENV := .venv
BIN  := $(VENV)/bin
GPU  := $(shell { [ -e /dev/nvidia0 ] || command -v nvidia-smi; } >/dev/null 2>&1 && echo yes)

# torch and triton are pinned only where a CPU runs them: a GPU machine takes the newest that its CUDA
# packages accept.
ifeq ($(GPU),yes)
SERVE       := .[cuda]
TEST        := .[cuda,test]
CONSTRAINTS := grep -v -E '^(torch|triton)==' constraints.txt
else
SERVE       := .
TEST        := .[test]
CONSTRAINTS := cat constraints.txt
endif
PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq -c $(VENV)/constraints.txt

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help voice serve test lint format clean browser clients docs fuzz soak

help:
	@echo "make serve [MODEL=$(MODEL)] [PORT=$(PORT)] [ARGS='...']   install, then start the server"
	@echo "make test    install, then run the whole gate: ruff, mypy, pytest"
	@echo "make lint    ruff and mypy alone"
	@echo "make format  let ruff rewrite the files"
	@echo "make docs    build the documentation site into site/"
	@echo "make browser try the playground in Chromium, which is installed if it is missing"
	@echo "make clients try stock clients (LiveKit, Pipecat, curl), each in its own environment"
	@echo "make voice   all sentences of the embedded voice, judged by a listener (minutes)"
	@echo "make fuzz    hours of malformed requests, frames and handshakes"
	@echo "make soak    hours of load with clients that leave; ARGS='--seconds 600' for less"
	@echo "make clean   remove $(VENV) and every cache"
	@echo "PYTHON=/path/to/python chooses the interpreter that $(VENV) is made with"

serve: $(VENV)/.serve
	@exec $(BIN)/python -m voxserve serve $(MODEL) --port $(PORT) $(ARGS)

# Two files at a time: the machines that this has to be quick on have two cores. Threads within one
# would spend most of theirs on waiting for the other's. tests/conftest.py says which files begin.
test voice: export OMP_NUM_THREADS = 1
test: lint
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy tests

format: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet $(ARGS)

browser: $(VENV)/.test
	@command -v chromium chromium-browser >/dev/null || \
	    { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; }
	$(BIN)/python -m pytest tests/browser/check_playground.py $(ARGS)

clients: $(VENV)/.test
	$(BIN)/python -m pytest -o python_files='test_*.py check_*.py' tests/clients $(ARGS)

voice: $(VENV)/.test
	$(BIN)/python -m pytest -m 'slow or not slow' tests/voice $(ARGS)

fuzz: $(VENV)/.test
	$(BIN)/python -m tests.fuzz $(ARGS)

soak: $(VENV)/.test
	$(BIN)/python -m tests.soak $(ARGS)

clean:
	rm -rf $(VENV) .clients site .schemathesis .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp a set of packages, so that a second `make` starts at once.
$(VENV)/.serve: $(VENV)/.made pyproject.toml constraints.txt
	@echo "installing voxserve into $(VENV); the first time takes a few minutes"
	$(PIP) -e '$(SERVE)'
	@touch $@

$(VENV)/.test: $(VENV)/.made pyproject.toml constraints.txt
	@echo "installing voxserve and its tools into $(VENV); the first time takes a few minutes"
	$(PIP) -e '$(TEST)'
	@touch $@ $(VENV)/.serve

$(VENV)/.docs: $(VENV)/.made pyproject.toml constraints.txt
	$(PIP) -e '.[docs]'
	@touch $@ $(VENV)/.serve

$(VENV)/.made: constraints.txt
	@for python in $(or $(PYTHON),python3 python3.13 python3.12 python3.11); do \
	    if $$python -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
	        2>/dev/null; then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	    echo "voxserve needs Python 3.11 or newer with its venv module (Debian: python3-venv);" \
	        "none of these is one: $(or $(PYTHON),python3 python3.13 python3.12 python3.11)." \
	        "Name yours with make PYTHON=/path/to/python" >&2; exit 1; \
	fi; \
	[ -x $(BIN)/python ] || { echo "making $(VENV) with $$found" && $$found -m venv $(VENV); }
	@$(CONSTRAINTS) > $(VENV)/constraints.txt
	@touch $@
