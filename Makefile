# make demo · test · bench · lint · docs · build · clean: each sets up what it needs.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := build

PYTHON ?= python3
JOBS ?= $(shell nproc)
VENV := .venv
BIN := $(VENV)/bin
NATIVE := build/native
# The editable install compiles here; the unit tests reuse its objects.
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
EDITABLE := $(PIP) install --no-build-isolation --no-deps \
	-C build-dir=$(NATIVE) -C cmake.define.DAQIRI_WERROR=ON
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(JOBS)

native_files := $(shell find native -name '*.h' -o -name '*.cpp' -o -name '*.in' -o -name '*.cmake' -o -name '*.txt')
python_folders := $(shell find daqiri_ophyd plans profiles -type d -not -name __pycache__)

.PHONY: build demo test bench lint docs asan tsan format lock clean

build: $(VENV)/.built

$(VENV)/.system-%: packages.apt .ci/packages
	.ci/packages $* packages.apt
	mkdir -p $(VENV) && touch $@

$(BIN)/python: | $(VENV)/.system-build
	$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit(f"$(PYTHON) is Python {v[0]}.{v[1]}; daqiri-ophyd needs 3.11 or newer: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.dependencies-%: pyproject.toml requirements.lock .ci/dependencies | $(BIN)/python
	$(PIP) install -c requirements.lock -r <(.ci/dependencies $*)
	touch $@

$(VENV)/.built: $(VENV)/.dependencies-catalog $(native_files)
	$(EDITABLE) -e .
	touch $@
