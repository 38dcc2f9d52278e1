# Everything a developer does; `make help` lists it. Needs Python 3.11 or newer and make, nothing else.
PYTHON ?= python3
PORT ?= 3000
DIRECTORY ?= .local
DESK_PORT ?= 3100
VENV := .venv
BIN := $(VENV)/bin
PACKAGES := libs/sdk libs/common services/token-service services/management-service services/template-service \
	services/console services/provision services/verifier services/all-in-one
RUNNABLE := $(VENV)/.runnable
INSTALLED := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest
# Cached bytecode: without it every worker rewrites every assertion, and every process that a test starts compiles everything.
unexport PYTHONDONTWRITEBYTECODE
CLIENTS := tests/clients/python
PAGES := services/token-service/src/token_service/sign_in/pages services/console/src/console \
	services/management-service/src/management_service/mail
FUZZING := tests/security/test_fuzzing.py
WITHOUT_FUZZING := -p no:schemathesis --ignore=$(FUZZING)

.PHONY: help run images up down walkthrough demo example test test-heavy test-slow test-long test-clients test-containers test-compose test-k8s test-k8s-long test-k8s-ha test-observed k8s-check check lint types imports bench bench-compare screenshots openapi settings rules messages lock mutants clean
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /  \1\t/' | expand -t 20
	@printf '\nfor contributors:\n'
	@grep -hE '^[a-z0-9-]+:.*##\+ ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*##\+ /  \1\t/' | expand -t 20

$(RUNNABLE): locks/build.lock requirements-run.lock pyproject.toml $(addsuffix /pyproject.toml,$(PACKAGES))
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; this is " + sys.version.split()[0] + ". Name another: make PYTHON=python3.12")'
	@echo "installing into $(VENV) (the first time takes about a minute)"
	@$(PYTHON) -m venv $(VENV)
	@# It has a current pip, which finds what the next lock names in a third of the time.
	@$(PIP) --require-hashes -r locks/build.lock
	@$(PIP) --require-hashes -r requirements-run.lock
	@$(PIP) --no-index --no-build-isolation --no-deps $(addprefix -e ,$(PACKAGES))
	@touch $@

$(INSTALLED): $(RUNNABLE) requirements.lock
	@echo "installing what tests and checks need"
	@# What is imported is compiled then; most of it is not.
	@$(PIP) --no-compile --require-hashes -r requirements.lock
	@touch $@

run: $(RUNNABLE) ## start the whole system on http://localhost:3000 (PORT= changes it)
	@STOP_WITH_PARENT=$$PPID exec $(BIN)/python -m all_in_one --port $(PORT) --directory $(DIRECTORY)

# The commit and its time: building the same tree again gives the same image, and its containers are kept.
images up: export REVISION = $(shell git rev-parse --verify --quiet HEAD)
images up: export CREATED = $(shell git log -1 --format=%cI 2>/dev/null)

images: ## build the images of the services and of provisioning, with the tag dev (needs Docker)
	@docker compose build

up: ## the whole system in containers on http://localhost:3000, with Docker Compose
	@docker compose up --build --wait
	@umask 077; mkdir -p "$(DIRECTORY)"; docker compose cp seed:/credentials/. "$(DIRECTORY)"
	@. "$(abspath $(DIRECTORY))/credentials.env"; printf '%s\n' "Stead is ready: $$BASE_URL" \
		"  console       $$BASE_URL/console, as the administrator of credentials.json" \
		"  credentials   $(DIRECTORY)/credentials.json, $(DIRECTORY)/credentials.env (readable by you alone)" \
		"  try it        make walkthrough (curl), make demo (the SDK), make example (a support desk)" \
		"  log           docker compose logs --follow" \
		"  stop          make down; the data stays in volumes"

down: ## stop it; its data stays, except with: docker compose down --volumes
	@docker compose --profile observe down

walkthrough: $(RUNNABLE) ##+ impersonation in four steps with curl, to paste beside a running `make run`
	@$(BIN)/python -m all_in_one.walkthrough --directory $(DIRECTORY)

demo: $(RUNNABLE) ## impersonation and the organization template through the SDK, against a running `make run`
	@$(BIN)/python -m all_in_one.demo --directory $(DIRECTORY)

example: $(RUNNABLE) ## a support desk on http://127.0.0.1:3100 (DESK_PORT= changes it), beside a running `make run`
	@exec $(BIN)/python examples/support-desk --port $(DESK_PORT) --directory $(DIRECTORY)

test: $(INSTALLED) ## the quick tests
	@$(PYTEST) $(WITHOUT_FUZZING) -n auto -m 'not heavy and not slow and not clients and not deployed and not kubernetes and not manifests and not observed'

test-heavy: $(INSTALLED) ##+ the tests that take half a second or more
	@$(PYTEST) $(WITHOUT_FUZZING) -n auto -m 'heavy and not slow and not clients and not observed'

# .ci/run adds the heavy tests, so that they are collected once.
test-slow: MARKED = slow and not clients
test-slow: $(INSTALLED) ##+ the races, the faults and the long runs, in short forms
	@# Fuzzing is not distributed, as its tests share one name; it runs while the others wait
	@# for the processes that they killed. So does one worker more than there are cores.
	@$(PYTEST) $(FUZZING) >$(VENV)/fuzzing.log 2>&1 & fuzzing=$$!; trap 'kill $$fuzzing' INT TERM; failed=0; \
		MORE_WORKERS=1 $(PYTEST) $(WITHOUT_FUZZING) -n auto --no-loadscope-reorder -m '$(MARKED)' || failed=1; \
		wait $$fuzzing || failed=1; cat $(VENV)/fuzzing.log; exit $$failed

test-long: $(INSTALLED) ##+ heavy and slow tests in full, and every client written elsewhere: three hours
	@TEST_LENGTH=long $(PYTEST) -m 'heavy or slow or clients'

test-clients: $(INSTALLED) ##+ a browser, and clients written elsewhere (needs node, npm and chromium)
	@$(PYTEST) $(WITHOUT_FUZZING) -m 'clients and not slow' tests/clients

test-containers: $(INSTALLED) ##+ what depends on the servers, against PostgreSQL, Redis and NATS in containers
	@TESTCONTAINERS_RYUK_DISABLED=true $(PYTEST) $(WITHOUT_FUZZING) -m 'servers and not slow' --containers \
		$$(grep -rlF --include='*.py' pytest.mark.servers tests/component tests/integration tests/protocol)

test-compose: $(INSTALLED) ##+ the images and docker-compose.yml (needs Docker)
	@$(PYTEST) $(WITHOUT_FUZZING) -m deployed tests/deployed

test-k8s: $(INSTALLED) ##+ deploy/k8s on the cluster of kubectl, whose node has the images (make images, .ci/cluster up)
	@$(PYTEST) $(WITHOUT_FUZZING) -m kubernetes --ignore=tests/deployed/kubernetes/long --ignore=tests/deployed/kubernetes/highly_available tests/manifests tests/deployed/kubernetes

test-k8s-long: $(INSTALLED) ##+ upgrades, faults and network policies on it, under load (also .ci/cluster previous COMMIT, traefik)
	@$(PYTEST) $(WITHOUT_FUZZING) -m kubernetes -s tests/deployed/kubernetes/long
	@$(MAKE) test-k8s-ha

test-k8s-ha: $(INSTALLED) ##+ the overlay highly-available on it: each store loses a server under load
	@$(PYTEST) $(WITHOUT_FUZZING) -m kubernetes -s tests/deployed/kubernetes/highly_available

k8s-check: $(INSTALLED) ##+ deploy/k8s and the chart by the schemas of Kubernetes, our rules, and the API server of KUBECONFIG or .ci/cluster
	@[ -n "$$KUBECONFIG" ] || ! .ci/cluster answers || eval "$$(.ci/cluster environment)"; $(PYTEST) -m manifests tests/manifests

test-observed: $(INSTALLED) ##+ traces, and deploy/observe with a real Prometheus (needs prometheus and promtool)
	@command -v prometheus >/dev/null && command -v promtool >/dev/null || { \
		echo 'prometheus and promtool are needed: apt-get install prometheus' >&2; exit 1; }
	@$(PYTEST) $(WITHOUT_FUZZING) -m observed tests/observed

check: lint types imports test ## lint, types, import contracts, quick tests

lint: $(INSTALLED) ##+ ruff: rules and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(INSTALLED) ##+ mypy --strict
	@$(BIN)/mypy

imports: $(INSTALLED) ##+ import contracts
	@$(BIN)/lint-imports

bench: $(INSTALLED) ## throughput and latency compared with a floor, in one run
	@$(BIN)/python -m benchmarks
	@$(BIN)/python -m benchmarks.organizations
	@$(BIN)/python -m benchmarks.sign_in
	@$(BIN)/python -m benchmarks.claims_workers
	@$(BIN)/python -m benchmarks.starting
	@$(BIN)/python -m benchmarks.idle
	@$(BIN)/python -m benchmarks.console

bench-compare: $(INSTALLED) ##+ requests of this tree and of a commit in turn, REV=<commit>; prints ratios
	@$(BIN)/python -m benchmarks.compare $(or $(REV),$(error name a commit: make bench-compare REV=<commit>))

screenshots: $(INSTALLED) ##+ screenshots of every page into build/screenshots and docs/images (ONLY=, IN=; needs Debian's chromium)
	@$(BIN)/python -m tests.screenshots build/screenshots docs/images --only '$(ONLY)' --language '$(or $(IN),en)'

openapi: $(INSTALLED) ##+ write the OpenAPI document of the three services together
	@$(BIN)/python -m all_in_one.openapi

settings: $(INSTALLED) ##+ write docs/operations/settings.md from the settings of the services
	@$(BIN)/python -m all_in_one.settings_page

RULES := deploy/k8s/components/prometheus-operator/prometheus-rule.yaml

rules: ##+ write the PrometheusRule of deploy/k8s from deploy/observe/rules.yml
	@printf '%s\n' '# Written by `make rules`, from deploy/observe/rules.yml; a test compares.' \
		'apiVersion: monitoring.coreos.com/v1' 'kind: PrometheusRule' 'metadata: {name: stead}' 'spec:' >$(RULES)
	@sed -n '/^groups:/,$$ s/^./  &/p' deploy/observe/rules.yml >>$(RULES)

messages: $(INSTALLED) ##+ update the catalogues of the pages; `make messages NEW=fr` creates new ones
	@for pages in $(PAGES); do (cd $$pages && \
		$(CURDIR)/$(BIN)/pybabel -q extract -F catalogues/babel.cfg --add-location=file --project=Stead \
			-o $(CURDIR)/$(VENV)/pages.pot templates); \
		$(if $(NEW),$(BIN)/pybabel -q init -i $(VENV)/pages.pot -l $(subst -,_,$(NEW)) -o $$pages/catalogues/$(NEW).po;) \
		for file in $$pages/catalogues/*.po; do \
			$(BIN)/pybabel -q update --no-fuzzy-matching --ignore-obsolete --ignore-pot-creation-date -w 120 \
				-i $(VENV)/pages.pot -l $$(basename $$file .po | tr - _) -o $$file; done; done

EXPORT := uv export --quiet --no-header --no-annotate --no-emit-workspace --no-emit-project --format requirements.txt
IMAGES := token-service management-service template-service console provision verifier

lock: ##+ pin the newest releases that fit (needs uv)
	@uv lock --quiet --upgrade
	@$(EXPORT) --all-packages --output-file requirements.lock
	@$(EXPORT) --all-packages --all-extras --no-dev --group build --output-file requirements-run.lock
	@$(EXPORT) --only-group build --output-file locks/build.lock
	@# Litestar needs these two only to generate examples in OpenAPI documents, which is switched off.
	@for image in $(IMAGES); do $(EXPORT) --package stead-$$image --all-extras --no-dev --no-emit-package faker \
		--no-emit-package polyfactory --output-file locks/$$image.lock; done
	@rm uv.lock
	@cd $(CLIENTS) && for each in clients fastapi; do uv pip compile --quiet --upgrade --generate-hashes --universal \
		--python-version 3.11 --no-emit-index-url --no-header --no-annotate $$each.in --output-file $$each.lock || exit 1; done

clean: ##+ remove the virtual environment and caches, but not .local
	@rm -rf $(VENV) .mypy_cache .ruff_cache .import_linter_cache .hypothesis

mutants: $(INSTALLED) ##+ change 100 decisions, one at a time, and see whether a test fails (most of an hour)
	@$(BIN)/python -m tests.mutants
