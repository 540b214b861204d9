# PeelReduce: a thin front to scripts/ and CMake. `make` alone lists what there is.
JOBS ?= $(shell nproc)
RELEASE := build/release
DEMO := build/demo
# Kernels for the GPU of this machine, or for one kind where there is none: enough to see that they compile. Users who
# build with CMake alone get more.
export CUDAARCHS ?= $(if $(shell command -v nvidia-smi),native,90)

.DEFAULT_GOAL := help
.PHONY: help demo test test-python test-gpu check bench bench-gpu evaluate evaluate-gpu plots docs packages wheels format clean always

help:
	@echo "make demo    build the program alone, then all-reduce gradients of four workers over slow links; build/demo.html"
	@echo "make test    build, then run the tests; fetches torch (5 GB) once, where there is none"
	@echo "make test-python  the tests of the Python package alone"
	@echo "make test-gpu  build, then run the tests that need a GPU; without one, say so"
	@echo "make check   slow tests, sanitizers, fuzzers, clang-tidy, format and house rules"
	@echo "make bench   build, then run the microbenchmarks"
	@echo "make bench-gpu  build, then measure the codec on a GPU against copying, and NCCL; without one, say so"
	@echo "make evaluate  build, then do the paper's evaluation again; writes build/evaluate/report.html (QUICK=1: in minutes)"
	@echo "make evaluate-gpu  the part of it that needs a GPU, into the same report"
	@echo "make plots   make the pictures of the documentation from docs/results"
	@echo "make docs    build the documentation as a site, build/site/index.html; fetches MkDocs once"
	@echo "make packages  build the Debian packages, and try them on a bare Debian 12; takes root and debootstrap"
	@echo "make wheels  make wheels of the Python package, in build/wheels, and test that for processors with torch 2.9 and 2.15"
	@echo "make format  rewrite the sources with clang-format"
	@echo "make clean   remove build/"
	@echo
	@echo "demo and test first install what is missing from scripts/packages.txt."

demo: $(DEMO)/build.ninja
	@cmake --build $(DEMO) --target peel -j $(JOBS)
	@scripts/demo $(DEMO)/peel

test: $(RELEASE)/build.ninja
	@cmake --build $(RELEASE) -j $(JOBS)
	@ctest --preset release -j $(JOBS)
	@PEEL_BUILT=$(RELEASE) scripts/test-python

test-python:
	@scripts/test-python

test-gpu: $(RELEASE)/build.ninja
	@JOBS=$(JOBS) scripts/test-gpu $(RELEASE)

check:
	@scripts/setup check
	@JOBS=$(JOBS) scripts/check

bench: $(RELEASE)/build.ninja
	@cmake --build $(RELEASE) -j $(JOBS)
	@set -e; for bench in $(RELEASE)/bench/*_bench; do \
	  if [ -x "$$bench" ]; then "$$bench"; else echo "no microbenchmarks were built"; fi; done

bench-gpu: $(RELEASE)/build.ninja
	@JOBS=$(JOBS) scripts/bench-gpu $(RELEASE)

evaluate:
	@JOBS=$(JOBS) scripts/evaluate $(if $(QUICK),--quick) $(if $(DATA),--data $(DATA)) $(if $(ONLY),--only $(ONLY))

evaluate-gpu:
	@JOBS=$(JOBS) scripts/evaluate --gpu $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY))

plots:
	@scripts/plots

docs:
	@scripts/docs

# Packages and wheels are for other machines, so CUDAARCHS is not that of this one unless the user said so.
FOR_OTHERS = $(if $(filter command environment,$(firstword $(origin CUDAARCHS))),,env -u CUDAARCHS) JOBS=$(JOBS)

packages: build/.packages
	@scripts/setup packages
	@$(FOR_OTHERS) scripts/packages

wheels:
	@$(FOR_OTHERS) scripts/wheels
	@scripts/try-wheel

format:
	@scripts/format --write

clean:
	rm -rf build

# scripts/setup touches this file only when it changed what is installed, so an unchanged machine is configured once.
build/.packages: always
	@scripts/setup

# The demonstration has a folder of its own: its program comes without kernels for GPUs, which take minutes to compile.
$(DEMO)/build.ninja: always
	@scripts/setup demo
	@[ $@ -nt build/.packages ] || { cmake --preset demo && touch $@; }

$(RELEASE)/build.ninja: build/.packages
	@cmake --preset release
	@touch $@
