# Every command that people and CI run. `make help` lists them.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
KUBE ?= build
ORACLE := .trimtab/oracle
ARCHIVE := $(VENV)/spark.jsa
SEED ?= 1000
COUNT ?= 100
STATES ?= 1000000
PULSAR ?=
export PULSAR
MINUTES ?= 30
HOURS ?= 6
SIZE ?= 100x600
SUPPORT := tests/support:tests/support/kube:tests/support/policies:tests/support/prometheus:tests/support/pulsar_parts:tests/support/chaos:tests/support/strategies:tests/support/lab:tests/support/model:tests/support/fuzz
# With --quiet, warnings would not count.
SITE := $(BIN)/properdocs build --strict

# Tests start hundreds of Python processes, which would compile every module anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup kube controllers helm pulsar oracle programs demo kind test test-full chart e2e chaos model fuzz soak check types drift fmt crds docs conformance plots screenshots record lock image bench clean

help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	@PYTHON="$(PYTHON)" VENV="$(VENV)" bash testbed/install.sh environment

$(STAMP): requirements/build.txt requirements/dev.txt pyproject.toml | $(BIN)/python
	@VENV="$(VENV)" bash testbed/install.sh packages
	@touch $@

# Packages come from the network and programs from the compiler, so both at once take little longer than one. Programs
# that run beside others write plain lines instead of a moving one.
PLAIN := 2>&1 | cat

setup: $(BIN)/python ## virtual environment (.venv), Kubernetes and Prometheus binaries; KUBE=download fetches instead of building
	@$(MAKE) --no-print-directory --jobs=2 $(STAMP) kube BESIDE="$(PLAIN)"
	@echo "ready: $(BIN)/trimtab --help"

kube: $(BIN)/python
	@set -o pipefail; PYTHONPATH=testbed/src $(BIN)/python -m trimtab_testbed.programs.setup kube prometheus $(if $(filter download,$(KUBE)),--download) $(BESIDE)

controllers: $(STAMP)
	@set -o pipefail; $(BIN)/python -m trimtab_testbed.programs.setup controllers $(if $(filter download,$(KUBE)),--download) $(BESIDE)

helm: $(STAMP)
	@set -o pipefail; $(BIN)/python tests/support/kube/helm_tools.py $(BESIDE)

pulsar: $(STAMP)
	@PYTHONPATH=$(SUPPORT) $(BIN)/python -m real_pulsar.distribution

$(ARCHIVE): $(STAMP) image/warm.py
	@SPARK_SUBMIT_OPTS="-XX:ArchiveClassesAtExit=$(abspath $@) -Xlog:cds=off -Xlog:cds+dynamic=off" $(BIN)/python image/warm.py

$(ORACLE)/.built: $(wildcard tests/oracle/*.sh tests/oracle/pom.xml tests/oracle/src/main/java/oracle/*.java)
	@bash tests/oracle/build.sh $(ORACLE)
	@touch $@

oracle: $(ORACLE)/.built ## Pulsar's own classes as a program, which tests and benchmarks compare with (needs Maven and a JDK)

programs: setup
	@$(MAKE) --no-print-directory --jobs=3 controllers helm oracle BESIDE="$(PLAIN)"

demo: setup ## watch a cluster of six brokers come level, on real parts, in about a minute (DEMO=--keep, DEMO=--json)
	@$(BIN)/trimtab demo $(DEMO)

kind: ## the same demo in a cluster of kind, for machines with Docker, kind, kubectl and Helm (IMAGE=trimtab.tar for a ready image)
	@bash examples/kind/demo.sh $(IMAGE)

test: $(STAMP) ## tests that need Python only, and a smoke test on a real API server where there is one (PYTEST="-k word" for some)
	@$(BIN)/pytest -n 3 --no-loadscope-reorder -m "quick or smoke" $(PYTEST)

test-full: programs $(ARCHIVE) ## all tests but those on real Pulsar brokers (PYTEST="-m full" for what make test leaves out)
	@$(BIN)/pytest -n 4 --no-loadscope-reorder -m "not e2e" $(PYTEST)

chart: setup helm ## the Helm chart: linted, rendered, put before a real API server, installed and removed (HELM=/path/to/helm for another)
	@$(BIN)/pytest -n 2 --no-loadscope-reorder tests/chart $(PYTEST)

e2e: setup pulsar $(ARCHIVE) ## real Pulsar brokers under real clients, with each load manager (PULSAR=4.2.4 for others; PYTEST="-k word" for some)
	@$(BIN)/pytest -m e2e -n 3 tests/e2e $(PYTEST)

chaos: setup ## things break at random for CHAOS_SECONDS=600: rounds of SEEDS="1 2 3", or fresh ones (tests/chaos/README.md)
	@CHAOS_SECONDS="$(CHAOS_SECONDS)" SEEDS="$(SEEDS)" LOAD="$(LOAD)" ROUND="$(ROUND)" PYTHONPATH=$(SUPPORT) \
		$(BIN)/python -m chaos_main

model: $(STAMP) ## a million states of the protocol, explored with the code that runs (STATES=1000000; tests/model/README.md)
	@PYTHONPATH=$(SUPPORT) $(BIN)/python -m model_main --states $(STATES)

fuzz: $(STAMP) ## every reader of foreign input under a coverage-guided fuzzer, MINUTES=30 each (TARGET=lint for one; docs/security.md)
	@$(BIN)/pip install --quiet --require-hashes -r requirements/fuzz.txt
	@PYTHONPATH=$(SUPPORT) $(BIN)/python -m fuzz_main --target "$(TARGET)" --minutes $(MINUTES)

soak: setup ## HOURS=6 of the operator's clock, with faults, in minutes: 100 brokers, 60,000 bundles (SIZE=100x600)
	@PYTHONPATH=$(SUPPORT) $(BIN)/python -m soak_main --hours $(HOURS) --size $(SIZE)

check: $(STAMP) ## linters, types, import contracts, spelling, drift of CRDs, Role and reference pages, sizes, links of the site
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target types drift

types: $(STAMP)
	$(BIN)/mypy

drift: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/trimtab crds --check crds
	$(BIN)/trimtab rbac --check deploy
	$(BIN)/trimtab rbac --check deploy/kustomize/base
	$(BIN)/trimtab crds --check charts/trimtab/files/crds
	$(BIN)/trimtab rbac --watch-nodes --check charts/trimtab/files
	$(BIN)/python docs/tools/generate.py --check
	$(BIN)/python tests/sizes.py
	$(SITE) --site-dir .trimtab/site

fmt: $(STAMP) ## format the code, mend what linters can mend
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

crds: $(STAMP) ## render crds/ from the resource models, deploy/rbac.yaml, and the chart's copies of both
	$(BIN)/trimtab crds --write crds
	$(BIN)/trimtab rbac --write deploy
	$(BIN)/trimtab rbac --write deploy/kustomize/base
	$(BIN)/trimtab crds --write charts/trimtab/files/crds
	$(BIN)/trimtab rbac --watch-nodes --write charts/trimtab/files

docs: $(STAMP) ## write the generated pages of docs/, and build the site of it all in site/
	$(BIN)/python docs/tools/generate.py
	$(SITE)
	@echo "open site/index.html, or for its search too: python3 -m http.server -d site, then http://localhost:8000"

plots: $(STAMP) ## redraw the algorithms' pictures of docs/explanation
	$(BIN)/python docs/tools/generate.py explanation/

screenshots: $(STAMP) ## redraw the pictures of terminals in docs/images
	$(BIN)/python docs/tools/generate.py images/

bench: $(STAMP) kube oracle ## the benchmarks, beside their references (see docs/benchmarks.md)
	$(BIN)/python benchmarks/decide.py
	$(BIN)/python benchmarks/hermes.py
	$(BIN)/python benchmarks/pipeline.py
	$(BIN)/python benchmarks/operator_at_scale.py

conformance: $(STAMP) ## replay recorded decisions of the original classes (FILES="tests/conformance/*/*.gz")
	@PYTHONPATH=$(SUPPORT) $(BIN)/python -m conformance.main $(FILES)

record: $(STAMP) oracle ## record afresh what Pulsar's own classes decide on random scenarios (SEED=1000 COUNT=100)
	@PYTHONPATH=$(SUPPORT) $(BIN)/python -m pulsar_recorder --seed $(SEED) --count $(COUNT)

image: setup ## prove without Docker that the program starts as user 10001 on a read-only root (needs root; IMAGE="command" for another)
	@sh image/prove.sh $(IMAGE)

lock: ## rewrite the hashed lock files from pyproject.toml (needs uv)
	sh requirements/lock.sh

clean: ## remove what set-up and tests made in this folder
	rm -rf $(VENV) .trimtab site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
