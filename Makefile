# PeelReduce: a thin front to scripts/ and CMake. `make` alone lists what there is.
JOBS ?= $(shell nproc)
RELEASE := build/release

.DEFAULT_GOAL := help
.PHONY: help demo test check bench format clean always

help:
	@echo "make demo    build, then all-reduce four gradients in one process and print what it gains"
	@echo "make test    build, then run every test"
	@echo "make check   sanitizers, fuzzers, clang-tidy, format and house rules"
	@echo "make bench   build, then run the microbenchmarks"
	@echo "make format  rewrite the sources with clang-format"
	@echo "make clean   remove build/"
	@echo
	@echo "demo and test first install what is missing from scripts/packages.txt."

demo: $(RELEASE)/build.ninja
	@cmake --build $(RELEASE) --target peel -j $(JOBS)
	@$(RELEASE)/peel demo

test: $(RELEASE)/build.ninja
	@cmake --build $(RELEASE) -j $(JOBS)
	@ctest --preset release -j $(JOBS)

check:
	@scripts/setup check
	@JOBS=$(JOBS) scripts/check

bench: $(RELEASE)/build.ninja
	@cmake --build $(RELEASE) -j $(JOBS)
	@set -e; for bench in $(RELEASE)/bench/*_bench; do \
	  if [ -x "$$bench" ]; then "$$bench"; else echo "no microbenchmarks were built"; fi; done

format:
	@scripts/format --write

clean:
	rm -rf build

# scripts/setup touches this file only when it changed what is installed, so an unchanged machine is configured once.
build/.packages: always
	@scripts/setup

$(RELEASE)/build.ninja: build/.packages
	@cmake --preset release
	@touch $@
