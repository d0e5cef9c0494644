# SPDX-License-Identifier: BSD-3-Clause
# A thin door over meson. As root on a fresh Debian 12:  make demo  and  make test
CC ?= gcc
ifeq ($(origin CC),default)
CC := gcc
endif
BUILD ?= build
MESON_ARGS ?=
FUZZ_SECONDS ?= 30
SECONDS ?= 600
SEEDS ?= 1000
FIRST ?=
SEED ?=
ONLY ?=
# What to build; empty: everything.
TARGETS ?=
DEMO_TARGETS := app/tagcastd/tagcastd app/tagcast-metad/tagcast-metad app/tagcastctl/tagcastctl \
	tests/demo/demo_gateway tests/demo/demo_publisher

.PHONY: all deps build demo test test-asan test-tsan lint format bench fuzz sim mutants soak clean install

all: build

deps:
	@devtools/install-deps

$(BUILD)/build.ninja: | deps
	@CC=$(CC) meson setup $(BUILD) $(MESON_ARGS) >$(BUILD).log 2>&1 || { cat $(BUILD).log; exit 1; }
	@mv $(BUILD).log $(BUILD)/setup.log

build: deps $(BUILD)/build.ninja
	@echo "building in $(BUILD)"
	@ninja -C $(BUILD) $(if $(V),-v,--quiet) $(TARGETS)

# The main job on real data. KEEP=1 leaves it running; FAULT=drop1|dup1|stale|removed must fail.
ifneq ($(FAULT),)
demo:
	@$(MAKE) --no-print-directory build BUILD=build-hooks TARGETS='$(DEMO_TARGETS)' \
		MESON_ARGS='-Dtest_hooks=true -Dperf=false'
	@FAULT=$(FAULT) KEEP=$(KEEP) python3 tests/demo/demo.py build-hooks
else
demo:
	@$(MAKE) --no-print-directory build TARGETS='$(DEMO_TARGETS)'
	@KEEP=$(KEEP) python3 tests/demo/demo.py $(BUILD)
endif

test: build
	@$(MAKE) --no-print-directory build BUILD=build-fuzz CC=clang \
		TARGETS='fuzz_targets app/tagcast-metad/tagcast-metad' \
		MESON_ARGS='-Dfuzz=true -Dperf=false -Db_sanitize=address,undefined -Db_lundef=false'
	@devtools/test-all $(BUILD) build-fuzz $(FUZZ_SECONDS)

# Unit and simulation tests under address and undefined behaviour sanitizers.
test-asan:
	@$(MAKE) --no-print-directory build BUILD=build-asan \
		MESON_ARGS='-Dperf=false -Db_sanitize=address,undefined -Db_lundef=false'
	@devtools/run-tests build-asan unit sim

# Unit tests under the thread sanitizer.
test-tsan:
	@$(MAKE) --no-print-directory build BUILD=build-tsan \
		MESON_ARGS='-Dperf=false -Db_sanitize=thread -Db_lundef=false'
	@TSAN_OPTIONS="suppressions=$(CURDIR)/tests/tsan.supp exitcode=66" devtools/run-tests build-tsan unit

lint: build
	@devtools/lint $(BUILD)

format:
	@git ls-files '*.c' '*.h' | xargs clang-format -i

bench: build
	@devtools/bench $(BUILD)

fuzz:
	@$(MAKE) --no-print-directory build BUILD=build-fuzz CC=clang TARGETS=fuzz_targets \
		MESON_ARGS='-Dfuzz=true -Dperf=false -Db_sanitize=address,undefined -Db_lundef=false'
	@devtools/fuzz build-fuzz $(SECONDS)

sim: build
	@$(BUILD)/tests/sim/sim $(if $(SEED),--seed $(SEED),--seeds $(SEEDS) $(if $(FIRST),--first $(FIRST)))

mutants:
	@devtools/mutants

# ONLY: a regular expression of names; the results of the others are kept.
soak: build
	@$(MAKE) --no-print-directory build BUILD=build-fuzz CC=clang TARGETS=app/tagcast-metad/tagcast-metad \
		MESON_ARGS='-Dfuzz=true -Dperf=false -Db_sanitize=address,undefined -Db_lundef=false'
	@devtools/soak $(BUILD) --sanitized build-fuzz $(if $(ONLY),--only '$(ONLY)')

install: build
	@meson install -C $(BUILD)

clean:
	@rm -rf build build-hooks build-fuzz build-asan build-tsan build-clang build-mutant
