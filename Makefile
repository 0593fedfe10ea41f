# SPDX-License-Identifier: Apache-2.0
# Short names for what CMake, ctest and the scripts do. `make help` lists them.

PREFIX ?= /usr/local
DESTDIR ?=
PRESET ?= release
PROGRAMS ?=
JOBS ?= $(shell nproc)
SOAK_ROUNDS ?= 20
LOAD_ROUNDS ?= 3
LOAD_PRESETS ?= release asan tsan
SOAK_OPERATIONS ?= 340000
GENERATOR := $(if $(shell command -v ninja),Ninja,Unix Makefiles)
# Tests wait longer than they work, and none of them minds the others.
CTEST = ctest --parallel $(shell expr 2 \* $(JOBS) + 1)

# $(call configure,WHAT TO BUILD IT FOR,OPTIONS OF CMAKE)
define configure
@scripts/configure --check $(PRESET)
@scripts/deps --for $(1)
@scripts/configure $(PRESET) -G "$(GENERATOR)" -DCMAKE_INSTALL_PREFIX=$(PREFIX) -DCISTERN_PROGRAMS=$(abspath $(PROGRAMS)) $(2)
endef
# $(call build,TARGET OF CMAKELISTS.TXT)
define build
@echo "make: building $(1) in build/$(PRESET)"
@cmake --build --preset $(PRESET) --parallel $(JOBS) --target $(1)
endef

.DEFAULT_GOAL := all
# Targets share a build folder: one after the other, each with JOBS.
.NOTPARALLEL:
.PHONY: help all demo tests test test-under-load clients soak mutants bench sim gpu-check lint format install clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

all: ## build the object, its tools and the simulated CUDA (PRESET=release|debug|asan|tsan)
	$(call configure,build)
	$(call build,product)

demo: ## replay a PyTorch training run without and with Cistern; builds for less than a minute
	$(call configure,demo)
	$(call build,demo)
	@scripts/demo build/$(PRESET)

tests: ## build everything, also the tests and benchmarks
	$(call configure,bench,-D CISTERN_TESTS=ON)
	$(call build,all)

test: export TEST_SEEDS ?= 3/3
test: export TEST_BARE_RUNS ?= kept
test: tests ## build and run every test, with a third of the random programs' seeds (TEST_SEEDS=: all)
	@left=$$(tests/left-out build/$(PRESET)); $(CTEST) --preset $(PRESET) --label-exclude soak $${left:+--exclude-regex "$$left"}
	@tests/drivers/fetch.py --tell build/$(PRESET)/drivers
	@echo "make test: all tests of build/$(PRESET) passed"

test-under-load: ## all tests beside busy programs, repeatedly (LOAD_ROUNDS=3), and on one processor: hours
	@for preset in release $(filter-out release,$(LOAD_PRESETS)); do $(MAKE) --no-print-directory tests PRESET=$$preset || exit 1; done
	@TEST_BARE_BUILD=$(CURDIR)/build/release tests/under-load $(LOAD_ROUNDS) $(LOAD_PRESETS)

clients: tests ## PyTorch and other libraries on the simulated device, without and with Cistern (NAMES=: all)
	@tests/clients/run build/$(PRESET) $(NAMES)

soak: ## the tests with all seeds, repeatedly, plain and under the sanitizers
	@for preset in release asan tsan; do \
	  $(MAKE) --no-print-directory tests PRESET=$$preset && \
	  $(CTEST) --preset $$preset --label-exclude soak --repeat until-fail:$(SOAK_ROUNDS) || exit 1; \
	done
	@$(CTEST) --preset release --label-regex soak
	@$(MAKE) --no-print-directory lint DEPTH=deep
	@TSAN_OPTIONS="$$TSAN_OPTIONS atexit_sleep_ms=0" tests/preload/soak-random $(SOAK_OPERATIONS) build/release build/asan build/tsan
	@build/asan/config_fuzz $$(date +%s) 1000000
	@build/asan/recording_fuzz $$(date +%s) 100000
	@build/asan/elf_fuzz $$(date +%s) 100000
	@build/asan/plan_fuzz $$(date +%s) 100000

mutants: ## plant bugs in the changed code, which the tests must notice (15 minutes at most; ALL=1: an hour)
	@scripts/deps --for bench
	@tests/mutation/run $(if $(ALL),--all) $(if $(BASE),--base $(BASE)) $(if $(MINUTES),--minutes $(MINUTES))

bench: tests ## measure against the goals; results stay in build/release/bench
	@tests/bench/run build/$(PRESET)

sim: tests ## run the tests of the simulated CUDA alone
	@$(CTEST) --preset $(PRESET) --label-regex '^sim$$'

gpu-check: ## run programs, checks and timings on a real GPU (exit 77 without one)
	@tests/gpu/run

lint: ## check format, clang-tidy and shellcheck (DEPTH=deep: the analyzer takes its time)
	$(call configure,lint)
	@tests/hygiene/lint build/$(PRESET) $(DEPTH)

format: ## rewrite the sources in the project's format
	@git ls-files -co --exclude-standard '*.h' '*.cc' '*.cu' '*.c' | xargs clang-format -i

install: all ## install under PREFIX (default /usr/local), staged in DESTDIR
	@umask 022; DESTDIR=$(DESTDIR) cmake --install build/$(PRESET) --prefix $(PREFIX)

clean: ## remove what was built
	rm -rf build
