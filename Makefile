# The handful of verbs. Each makes its own environment in .venv; all that is needed is Python >= 3.11.
PYTHON ?= $(shell for v in python3 python3.14 python3.13 python3.12 python3.11; do command -v $$v >/dev/null 2>&1 && $$v -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$v && break; done)
BIN := .venv/bin
READY := .venv/.ready
# Bytecode is written even where the environment says not to: workers and brokers start in half the time.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q -p tests.report -o console_output_style=classic
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build
MAVEN := --quiet --batch-mode dependency:copy-dependencies -DincludeScope=runtime

.DEFAULT_GOAL := help
.PHONY: help setup run test check format docs site screenshots vendor wheel bench clean peers peers-test suites peers-bench plans-test torment torment-spark

help:  ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(READY)  ## make the environment in .venv

$(READY): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "odradek needs Python 3.11 or newer on the PATH"; exit 1; }
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv .venv  # one without pip is half made
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	$(BIN)/python -m compileall -q src  # a broker starts twice as fast, also where nothing else may write it
	@touch $@

run: $(READY)  ## the main job: cluster, live stream, Spark pipeline, audit (SECONDS=60, CHAOS=1)
	$(BIN)/odradek demo $(if $(SECONDS),--seconds $(SECONDS)) $(if $(CHAOS),--chaos)

check: $(READY)  ## formatter, linter, strict type checker, links of the documentation
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(MKDOCS) --quiet --site-dir build/check

format: $(READY)  ## rewrite the code the way check wants it
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Processes are waited for half of the time, so that three workers keep two cores busy.
test: $(READY)  ## all tests, fast ones first
	$(PYTEST) --group "in one process" -n 2 --dist worksteal -m "not process and not spark"
	$(PYTEST) --group "with processes" -n 3 --dist loadfile -m "process and not spark"
	$(PYTEST) --group "with Spark" -n 2 --dist loadfile --no-loadscope-reorder -m spark

docs: $(READY)  ## draw diagrams, list metrics and make the dashboard, from the tables they stand in
	$(BIN)/python tools/diagrams.py
	$(BIN)/python tools/metrics.py
	$(BIN)/python tools/security_settings.py

site: $(READY)  ## the documentation as a site in build/site, which needs no network to be read
	$(MKDOCS)

screenshots: $(READY)  ## pictures of the console's screens for docs/console.md, from a seeded cluster
	$(BIN)/python -m tools.screenshots

vendor: $(READY)  ## fetch the console's browser libraries again, by version and hash
	$(BIN)/python tools/vendor.py

wheel: $(READY)  ## build the wheel in dist/ (HOME_URL= where the repository is, for a release)
	$(BIN)/python tools/wheel.py $(if $(HOME_URL),--home $(HOME_URL))

bench: $(READY)  ## measure: ratios and figures on this machine (ONLY="wire log")
	$(BIN)/python -m benchmarks $(ONLY)

clean:  ## forget the environment and caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist

peers:  ## bring Apache Kafka 3.9, 4.x and older through Maven, to test and measure beside them
	cd tests/interop/harness && mvn $(MAVEN) --file pom.xml -DoutputDirectory=lib/kafka-3.9
	cd tests/interop/harness && mvn $(MAVEN) --file pom-4.xml -DoutputDirectory=lib/kafka-4
	cd tests/interop/harness && mvn $(MAVEN) --file pom-2.8.xml -DoutputDirectory=lib/kafka-2.8
	cd tests/interop/harness && mvn $(MAVEN) --file pom-3.5.xml -DoutputDirectory=lib/kafka-3.5
	cd tests/interop/harness/spark && mvn $(MAVEN) -DoutputDirectory=../lib/spark-kafka

peers-test: $(READY)  ## beside Apache Kafka: one cluster, tools, files, clients (TESTS="not 2.8", QUICK=1)
	$(BIN)/python -m pytest tests/interop -m "not spark$(if $(QUICK), and not slow)" $(if $(TESTS),-k "$(TESTS)")
	$(BIN)/python -m pytest tests/interop -m "spark$(if $(QUICK), and not slow)" $(if $(TESTS),-k "$(TESTS)")

suites: $(READY)  ## franz-go's and librdkafka's own tests against three brokers (ONLY=franz-go)
	$(BIN)/python -m tests.suites $(ONLY)

peers-bench: $(READY)  ## ours and Apache Kafka in turns, written to docs/benchmark.md (ONLY="consume tls")
	$(BIN)/python -m benchmarks.apache_kafka $(if $(ONLY),--only $(ONLY))

plans-test: $(READY)  ## plans by load on real brokers under load, with deaths
	$(BIN)/python -m pytest tests/soak/plans.py

torment: $(READY)  ## an hour of killing, pausing and moving (SECONDS=, SEED=)
	$(BIN)/python -m tests.soak $(or $(SECONDS),3600) $(SEED)

torment-spark: $(READY)  ## an hour of killing a pipeline's driver, Java and executors, and an audit (SECONDS=, SEED=)
	$(BIN)/python -m tests.soak.spark $(or $(SECONDS),3600) $(SEED)
