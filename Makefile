# SPDX-License-Identifier: Apache-2.0
# Short names for what CMake, ctest and the scripts do. `make help` lists them.

PREFIX ?= /usr/local
DESTDIR ?=
PRESET ?= release
JOBS ?= $(shell nproc)
SOAK_ROUNDS ?= 20
SOAK_OPERATIONS ?= 340000
GENERATOR := $(if $(shell command -v ninja),Ninja,Unix Makefiles)
# Tests wait about as long as they work.
CTEST = ctest --parallel $(shell expr $(JOBS) + 1)

.DEFAULT_GOAL := all
.PHONY: help all demo test clients soak mutants bench sim gpu-check lint format install clean deps configure

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

all: configure ## build everything (PRESET=release|debug|asan|tsan)
	@cmake --build --preset $(PRESET) --parallel $(JOBS)

demo: all ## replay a PyTorch training run without and with Cistern
	@scripts/demo build/$(PRESET)

test: export TEST_SEEDS ?= 3/3
test: all ## build and run every test, with a third of the random programs' seeds (TEST_SEEDS=: all)
	@$(CTEST) --preset $(PRESET) --label-exclude soak
	@tests/drivers/fetch.py --tell build/$(PRESET)/drivers
	@echo "make test: all tests of build/$(PRESET) passed"

clients: all ## PyTorch and other libraries on the simulated device, without and with Cistern (NAMES=: all)
	@tests/clients/run build/$(PRESET) $(NAMES)

soak: ## the tests with all seeds, again and again, plain and under the sanitizers
	@for preset in release asan tsan; do \
	  $(MAKE) --no-print-directory all PRESET=$$preset && \
	  $(CTEST) --preset $$preset --label-exclude soak --repeat until-fail:$(SOAK_ROUNDS) || exit 1; \
	done
	@$(CTEST) --preset release --label-regex soak
	@$(MAKE) --no-print-directory lint DEPTH=deep
	@TSAN_OPTIONS="$$TSAN_OPTIONS atexit_sleep_ms=0" tests/preload/soak-random $(SOAK_OPERATIONS) build/release build/asan build/tsan
	@tests/fuzz/config_fuzz_test.sh $$(date +%s) 1000000

mutants: deps ## plant bugs where the change is: the tests must notice (15 minutes at most; ALL=1: an hour)
	@tests/mutation/run $(if $(ALL),--all) $(if $(BASE),--base $(BASE)) $(if $(MINUTES),--minutes $(MINUTES))

bench: all ## measure against the goals; results stay in build/release/bench
	@tests/bench/run build/$(PRESET)

sim: all ## build and test the simulated CUDA alone
	@$(CTEST) --preset $(PRESET) --label-regex '^sim$$'

gpu-check: ## run programs, checks and timings on a real GPU (exit 77 without one)
	@tests/gpu/run

lint: all ## check format, clang-tidy and shellcheck (DEPTH=deep: the analyzer takes its time)
	@scripts/deps --for lint
	@tests/hygiene/lint build/$(PRESET) $(DEPTH)

format: ## rewrite the sources in the project's format
	@git ls-files -co --exclude-standard '*.h' '*.cc' '*.cu' '*.c' | xargs clang-format -i

install: all ## install under PREFIX (default /usr/local), staged in DESTDIR
	@umask 022; DESTDIR=$(DESTDIR) cmake --install build/$(PRESET) --prefix $(PREFIX)

clean: ## remove what was built
	rm -rf build

# A build folder that was moved or copied is begun anew: CMake would refuse it.
configure: deps
	@[ -w build ] || { echo "make: no permission to write to $(CURDIR)/build: clone the tree to a folder of yours, and make there" >&2; exit 1; }
	@from=$$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' build/$(PRESET)/CMakeCache.txt 2>/dev/null); fresh=; \
	if [ -n "$$from" ] && ! [ "$$from" -ef . ]; then \
	  fresh=--fresh; echo "make: build/$(PRESET) was made in $$from: it is built anew" >&2; \
	fi; \
	cmake $$fresh --preset $(PRESET) -G "$(GENERATOR)" -DCMAKE_INSTALL_PREFIX=$(PREFIX) >build/configure.log 2>&1 || { cat build/configure.log >&2; exit 1; }

deps:
	@mkdir -p build
	@scripts/deps --for bench
