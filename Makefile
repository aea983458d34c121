# make demo · test · bench · lint · docs · build · clean: each sets up what it needs.
# With a GPU: gpu-test, gpu-bench. Also: unit-oldest, unit-newest (unit tests with these of the Pythons in pyproject.toml),
# wheels (PYTHONS="python3.11 python3.13"), asan, tsan (sanitizer runs of the C++ tests), vm (tests with a kernel of
# their own), fuzz (FUZZ_SECONDS=300), tools (installs what these need), format, lock.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := build

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE := build/native
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(shell nproc)
# Tests of threads, sockets, files and other processes wait much of their time, those in C++ most. A
# test process with a catalog and its server takes a GiB, of the host's memory and of a container's.
TEST_JOBS := $(shell awk -v processors=$(CMAKE_BUILD_PARALLEL_LEVEL) \
	'/^MemAvailable/ {kib = $$2} /^[0-9]+$$/ && $$1 / 1024 < kib {kib = $$1 / 1024} \
	END {n = int(5 * processors / 2); fit = int(kib / 1048576); if (fit < n) n = fit; print n < 1 ? 1 : n}' \
	/proc/meminfo $(wildcard /sys/fs/cgroup/memory.max))
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Images of Python set it; each of many processes would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE
FUZZ_SECONDS ?= 300
# How far clang's analyzer follows one function: its own default. CI follows the longest ones less far, which
# takes less time.
ANALYZER_NODES ?= 225000
# In order, integration before unit: else files of few tests, which are the long ones, come last,
# and a processor has nothing to do.
PYTEST_ORDER := --dist loadfile --no-loadscope-reorder

PIP := $(BIN)/python -m pip -qq
# The extension is compiled in $(NATIVE), without isolation so that the folder stays valid; the C++
# tests and benchmarks are compiled beside it and share its objects.
BUILD_HERE = --no-build-isolation --no-deps --config-settings=build-dir=$(NATIVE) \
	--config-settings=cmake.build-type=$(BUILD_TYPE) --config-settings=cmake.define.DAQIRI_WERROR=ON
BUILD_TYPE := Release
native_files := CMakeLists.txt $(shell find native/include native/src native/python native/cmake -type f) \
	native/CMakeLists.txt docs/man/daqiri-ophyd.1
cpp_files = $(shell find native -name '*.h' -o -name '*.cpp')

.PHONY: build demo test unit unit-oldest unit-newest unit-wheel bench gpu-test gpu-bench lint docs vm wheels \
	asan tsan fuzz dpdk tools format lock clean

build: $(VENV)/.built

demo: build
	$(BIN)/daqiri-ophyd demo

# Installed first: engine dpdk is built where libdpdk is found.
test: build/.system-dpdk $(VENV)/.dependencies-dev build/.system-test build/.s3rver
	@$(MAKE) build
	@cmake -S . -B $(NATIVE) -DDAQIRI_BUILD_TESTS=ON >build/configure.log
	cmake --build $(NATIVE)
	ctest --test-dir $(NATIVE) -j $$((2 * $(TEST_JOBS))) --output-on-failure --no-tests=error
	$(BIN)/pytest -n $(TEST_JOBS) $(PYTEST_ORDER) -m "not fills_backlog" $(PYTEST_ARGS)
# One after the other; 5: PYTEST_ARGS leaves none.
	$(BIN)/pytest -m fills_backlog $(PYTEST_ARGS) || [ $$? -eq 5 ]

unit: build $(VENV)/.dependencies-test
	$(BIN)/pytest -n $(CMAKE_BUILD_PARALLEL_LEVEL) $(PYTEST_ORDER) tests/unit $(PYTEST_ARGS)

# In a virtual environment and a build folder of its own; None, which optimises nothing, compiles
# sooner.
unit-oldest:
	@python=$$(.ci/python oldest) && $(MAKE) unit PYTHON=$$python VENV=build/$@ \
		NATIVE=build/$@/native BUILD_TYPE=None

# Of the wheel that users install, instead of the checkout.
unit-newest: build/.system-build build/.system-wheels
	@python=$$(.ci/python newest) && $(MAKE) unit-wheel PYTHON=$$python VENV=build/$@

unit-wheel: $(VENV)/.dependencies-test $(VENV)/.dependencies-wheels
	rm -rf $(VENV)/dist
	@PATH=$(CURDIR)/$(BIN):$$PATH .ci/wheel $(VENV)/dist $(BIN)/python >$(VENV)/wheel.log 2>&1 || \
		{ tail -n 100 $(VENV)/wheel.log && exit 1; }
	$(PIP) install --no-deps --no-index --force-reinstall $(VENV)/dist/*.whl
	PYTHONSAFEPATH=1 $(BIN)/pytest -n $(CMAKE_BUILD_PARALLEL_LEVEL) $(PYTEST_ORDER) tests/unit $(PYTEST_ARGS)

bench: build $(VENV)/.dependencies-bench build/.system-bench
	@cmake -S . -B $(NATIVE) -DDAQIRI_BUILD_BENCH=ON >build/configure.log
	cmake --build $(NATIVE)
	$(BIN)/python benchmarks $(BENCH_ARGS)

gpu-test: build $(VENV)/.dependencies-dev $(VENV)/.dependencies-gpu
	$(BIN)/python -c 'import cupy; cupy.cuda.runtime.getDeviceCount()'
	$(BIN)/pytest tests/integration/gpu $(PYTEST_ARGS)

gpu-bench: build $(VENV)/.dependencies-gpu
	@cmake -S . -B $(NATIVE) -DDAQIRI_BUILD_BENCH=ON >build/configure.log
	cmake --build $(NATIVE) --target bench_gpu peers_udp_send
	$(BIN)/python benchmarks --only gpu gpu_udp gpu_files $(BENCH_ARGS)

lint: build $(VENV)/.dependencies-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	@$(BIN)/clang-format --dry-run --Werror $(cpp_files)
	.ci/includes
	.ci/layout build/layout
	$(BIN)/pyright | \
		sed -E 's,build/layout/daqiri_ophyd/(plans|profiles)/,\1/,; s,build/layout/,,'
	cd build/layout && SKBUILD_EDITABLE_SKIP=$(CURDIR)/$(NATIVE) $(CURDIR)/$(BIN)/lint-imports \
		--config $(CURDIR)/pyproject.toml --cache-dir $(CURDIR)/build/import-linter
	@cmake --preset tidy -DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python \
		-Dpybind11_DIR=$$($(BIN)/python -m pybind11 --cmakedir) >build/configure-tidy.log
	.ci/tidy build/tidy $(BIN)/clang-tidy $(ANALYZER_NODES)

# A second opinion on uploads; its tests are skipped where npm or its registry is missing.
build/.s3rver:
	@mkdir -p build/s3rver
	-@npm install --silent --no-audit --no-fund --prefix build/s3rver s3rver@3.7.1 >build/s3rver.log 2>&1
	@touch $@

# Anew: pages that are no longer there would be looked at, too.
docs: build $(VENV)/.dependencies-docs $(VENV)/.dependencies-dev build/.system-docs
	rm -rf build/docs
	$(BIN)/sphinx-build -W --keep-going -q docs build/docs
	$(BIN)/pytest -q tests/docs --site build/docs
	@echo "build/docs/index.html"

vm: build $(VENV)/.dependencies-dev build/.system-vm build/vm/boot build/guest/disk.img build/qemu/run dpdk
	$(BIN)/pytest -m vm tests/vm

# Engine dpdk, in a folder of its own with the tests of all engines: virtual machines run these.
dpdk: build/.system-build build/.system-test build/.system-dpdk
	@cmake -S . -B build/dpdk -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_UNITY_BUILD=ON \
		-DDAQIRI_BUILD_TESTS=ON >build/configure-dpdk.log
	cmake --build build/dpdk --target test_engines
	ctest --test-dir build/dpdk -R '^engines[.]' --output-on-failure --no-tests=error

# fuzz and asan share a folder, and may run at once: the lock is for that.
asan: build/.system-dpdk
asan tsan: build/.system-build build/.system-test build/.system-sanitize
	@flock build/.system-sanitize cmake --preset $@ >build/configure-$@.log
	flock build/.system-sanitize cmake --build --preset $@
	ctest --preset $@ -j $(TEST_JOBS)

# The engine's objects are those of asan.
fuzz: build/.system-build build/.system-test build/.system-sanitize build/.system-dpdk
	@flock build/.system-sanitize cmake --preset asan >build/configure-asan.log
	flock build/.system-sanitize cmake --build --preset $@
	.ci/fuzz build/asan/fuzz $(FUZZ_SECONDS)

# In dist: for each of PYTHONS, and for the first of them on aarch64.
PYTHONS ?= $(BIN)/python
wheels: $(VENV)/.dependencies-test $(VENV)/.dependencies-wheels build/.system-build build/.system-wheels \
		build/.system-wheels-test
	rm -rf dist
	PATH=$(CURDIR)/$(BIN):$$PATH .ci/wheel dist $(PYTHONS)
	PATH=$(CURDIR)/$(BIN):$$PATH ARCH=aarch64 .ci/wheel dist $(firstword $(PYTHONS))
	$(BIN)/pytest -m wheels tests/wheels --wheels dist $(PYTEST_ARGS)

# What targets other than build and bench install, at once.
tools: build/.system-test build/.system-docs build/.system-sanitize build/.system-dpdk $(VENV)/.dependencies-dev \
	$(VENV)/.dependencies-docs
	@$(MAKE) build

format: $(VENV)/.dependencies-dev
	$(BIN)/ruff check --fix-only -q
	$(BIN)/ruff format -q
	@$(BIN)/clang-format -i $(cpp_files)

lock: $(BIN)/python
	.ci/lock $(BIN)/python >requirements.new
	mv requirements.new requirements.lock

clean:
	rm -rf build $(VENV)

# The distribution's kernel, unpacked beside the one that runs.
build/vm/boot: .ci/guest-kernel | build/.system-vm
	@.ci/guest-kernel build/vm

# For devices that the distribution's QEMU lacks; their tests are skipped where it cannot be had.
build/qemu/run: .ci/guest-qemu | build/.system-vm
	-@.ci/guest-qemu build/qemu

build/guest/disk.img: .ci/guest-disk | build/.system-vm
	@.ci/guest-disk $@

build/.system-%: packages.apt .ci/packages
	@mkdir -p build
	@flock build .ci/packages $* packages.apt
	@touch $@

$(BIN)/python: | build/.system-build
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit(f"$(PYTHON) is Python {v[0]}.{v[1]}; daqiri-ophyd needs 3.11 or newer. Try: make PYTHON=/path/to/python3.11")'
	@echo "Making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)

# Dependencies first and apart: one that comes as source needs the isolation that our build forgoes.
$(VENV)/.dependencies-%: pyproject.toml requirements.lock .ci/dependencies .ci/install | $(BIN)/python
	@echo "Installing Python packages ($*)"
	@flock $(VENV) .ci/install $(BIN)/python $*
	@touch $@

# Editable: a change in Python needs nothing, a change in C++ comes through here. The backend also
# puts the checkout and the folder above it on sys.path, where 'plans' and strangers would be found.
$(VENV)/.built: $(VENV)/.dependencies-shell $(native_files) $(wildcard build/.system-dpdk)
	@echo "Compiling the engine and installing daqiri-ophyd, editable"
	@flock $(VENV) $(PIP) install $(BUILD_HERE) -e .
	@sed -i '/^import/!d' $(VENV)/lib/python3*/site-packages/_editable_skbc_daqiri_ophyd.pth
	@touch $@
