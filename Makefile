# make demo [STORE=s3 ARGS=--console]  five writers and a deleting process on one table, and the proof that nothing was lost
# make test [ARGS="-k s3" LIMIT_MINUTES=25]  the tests; a run that takes longer says what hung, and is ended
# make test-fast            those that need no Spark, ZooKeeper or S3, with few examples and few seeds: a developer's loop
# make test-long test-delta            the tests' long versions: every operation of every cell, long random histories, properties with many examples
# make test-delta           Delta Lake on Spark and DuckDB read what sluice wrote, and Delta Lake takes over what was given back (fetches both)
# make golden [TURNS=4 ARGS="-k partitions"]  tables that Delta Lake on Spark made, and tables that it reads: every feature, every version, by turns
# make test-connect         Spark Connect and pandas, whose packages the tests' environment lacks (fetches them)
# make test-clouds          tables in Azure's storage, on Azurite (which npm fetches)
# make simulate [SEEDS=1000]  the commit protocol under a simulated clock, with faults, judged by a model (docs/simulation.md)
# make explore [WORLDS=a,b MINUTES=10]  small worlds, every interleaving of the real code, and the protocol's model (docs/small-worlds.md)
# make chaos [MINUTES=5] [SEED=..]  real servers, lines, stores, processes and Spark broken, and a judge (docs/chaos.md)
# make soak [HOURS=8]        seeds that never ran before and chaos, in turns, and one page of what they found (docs/chaos.md)
# make drill [TABLES=300]    an ensemble lost with its data, a new one, and every table restored: how long it takes (docs/operations/backup.md)
# make mutate [ONLY=name,..]  checks of the protocol taken out one at a time, and what notices (docs/mutations.md)
# make up [ARGS=--help]     three ZooKeeper servers, an S3 store, the daemon, the exporter and a little load, without Docker, until Ctrl-C
# make deploy-tools         promtool, Prometheus and Helm in .tools, for the tests of deploy/ (from Debian's packages and Go's modules)
# make check                formatting, lint, types, the direction of the imports
# make budget [ARGS='--show "append"']  how many functions and modules a call runs, and how much source there is: numbers that may only fall
# make docs                 the documentation as a site, in site/; a link that leads nowhere is an error
# make bench-console [ARGS="--tables 300 --busy 30"]   what `sluice console` costs: its processor time, and the writers' commits without and with it
# make bench-commits [WRITERS=8 SECONDS=10 LATENCY_MS=30 ACK=published SYSTEMS=sluice,delta-rs,pyiceberg]
# make bench-engine [ARGS="--commits 10000 --files 10"]
# make bench-snapshots [ARGS="--files 100000,1000000 --wide 300000"]   opening tables of very many files, beside delta-rs
# make bench-checkpoints [ARGS="--files 1000000"]   classic and V2 checkpoints of very many files, and appends beside them
# make bench-log-tails [ARGS="--commits 100,1000"]   opening tables with many commits after their checkpoint, on disk and on S3
# make bench-clustering [ARGS="--rows 10000000"]   what filters read: unclustered, z-order, clustered, by Delta Lake; what a DELETE beside it costs
# make bench-overwrite [ARGS="--files 100000,1000000"]   replacing all files of a table: time and peak memory
# make bench-contention [ARGS="--appends 400"]  what telling contention costs: appends that meet nobody, writers that meet
# make bench-quotas [ARGS="--clients 500 --slots 16"]  a crowd of clients of one application, and what it costs another one, without quotas and with one
# make bench-start [ARGS="--runs 3"]  imports, and a Spark program's first append and read, beside others
# make bench-spark [ARGS="--rows 5000000 --runs 1"]  writes, reads and changes of rows on Spark, beside Delta Lake (its jars) and Parquet,
#                                     and queries of few of 10,000 files: FILES_ARGS="--files 10000 --runs 5"
# make bench-scale [ARGS="--tables 1,10 --clients 1,10 --writers 1,8 --seconds 5"]  1 to 1,000 tables, 1 to 500 clients, 1 to 64 writers a table:
#                                     commits per second, times, what is the ceiling, requests and their money; --write-docs puts it into docs/scale.md
# make bench-streams [ARGS="--commits 40 --queries 1,4,16 --seconds 15"]  from a commit to the stream that reads it; batches per second into one table
#
# Each target makes its own environment in .venv when there is none, or when pyproject.toml changed.

PYTHON = python3
VENV = .venv
BIN = $(VENV)/bin
READY = $(VENV)/.ready-$(firstword $(shell cksum < pyproject.toml))

STORE = local
WORKERS = 4
WRITERS = 8
SECONDS = 10
LATENCY_MS = 30
ACK = published
SYSTEMS = sluice,delta-rs,pyiceberg
SEEDS = 1000
MINUTES = 5
SEED =
WORLDS =
ONLY =
ARGS =
# After so many minutes a run of tests says what hung, and is ended; 0 for no limit.
LIMIT_MINUTES = 25
FILES_ARGS =

.PHONY: help demo test test-fast test-long test-delta golden test-connect test-clouds simulate explore chaos soak drill mutate check budget docs bench-commits bench-engine bench-snapshots bench-checkpoints bench-log-tails bench-clustering bench-overwrite bench-start bench-spark bench-streams bench-scale java spark-classes clean bench-console bench-contention bench-quotas up deploy-tools

help:
	@sed -n 's/^# \{0,1\}//; 1,/^$$/p' Makefile

$(READY): pyproject.toml
	@scripts/make-environment $(VENV) $(PYTHON) $@

java:
	@scripts/require-java

demo: java $(READY)
	@$(BIN)/python -m examples.demo --store $(STORE) $(ARGS)

up: java $(READY)
	@$(BIN)/python -m examples.up $(ARGS)

deploy-tools:
	@scripts/fetch-deploy-tools .tools

# More workers than cores: many tests wait for sessions to end, for servers to start and for calls to give up.
PYTEST = $(BIN)/python -m tests.limited --minutes $(LIMIT_MINUTES) -- $(BIN)/python -m pytest --dist worksteal

# Spark's JVMs of the tests read their classes from a file, which is made where there is none that fits.
spark-classes: java $(READY)
	@$(BIN)/python -m tests.fixtures.spark_start

# A part of the long tests on top, such as 3/16.
LONG_SHARE ?=

test: java $(READY) spark-classes
	@$(PYTEST) -n $(WORKERS) $(if $(LONG_SHARE),--long-share $(LONG_SHARE)) $(ARGS)

test-fast: $(READY)
	@$(PYTEST) -n 4 --hypothesis-profile=fast -m "not (spark or zookeeper or s3 or slow or long or delta_spark or clouds)" $(ARGS)

test-long: LIMIT_MINUTES = 240
test-long: java $(READY) spark-classes
	@$(PYTEST) -n $(WORKERS) --hypothesis-profile=long -m "long or hypothesis" $(ARGS)

# Delta Lake's jars go with one PySpark, which need not be the one sluice is tested with: so it has an environment of its own.
DELTA_READY = .venv-delta/.ready-$(firstword $(shell cksum < tests/delta_spark/requirements.txt))

$(DELTA_READY): tests/delta_spark/requirements.txt
	@$(PYTHON) -m venv .venv-delta
	@.venv-delta/bin/python -m pip install --quiet --disable-pip-version-check -r tests/delta_spark/requirements.txt
	@rm -f .venv-delta/.ready-*
	@touch $@

test-delta: java $(READY) $(DELTA_READY)
	@DELTA_PYTHON=$(CURDIR)/.venv-delta/bin/python $(BIN)/python -m pytest -m delta_spark tests/delta_spark $(ARGS)

# The last lines count what was skipped, with the reader that lacks it.
TURNS = 4
golden: java $(READY) $(DELTA_READY)
	@TURNS=$(TURNS) DELTA_PYTHON=$(CURDIR)/.venv-delta/bin/python $(BIN)/python -m pytest -m delta_spark tests/conformance $(ARGS)

CONNECT_READY = .venv-connect/.ready-$(firstword $(shell cksum < pyproject.toml))

$(CONNECT_READY): pyproject.toml
	@$(PYTHON) -m venv .venv-connect
	@.venv-connect/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[test]' 'pyspark[connect]'
	@rm -f .venv-connect/.ready-*
	@touch $@

test-connect: java $(CONNECT_READY)
	@.venv-connect/bin/python -m pytest tests/spark_integration/test_connect.py tests/tables/read/test_results.py $(ARGS)

CLOUDS = .venv-clouds
AZURITE = 3.37.0
CLOUDS_READY = $(CLOUDS)/.ready-$(AZURITE)

$(CLOUDS_READY):
	@npm install --silent --no-fund --no-audit --prefix $(CLOUDS) azurite@$(AZURITE)
	@rm -f $(CLOUDS)/.ready-*
	@touch $@

test-clouds: $(READY) $(CLOUDS_READY)
	@CLOUDS=$(CURDIR)/$(CLOUDS) $(BIN)/python -m pytest -m clouds $(ARGS)

# Standard output ends with one JSON object; a seed that fails is shrunk, and prints the command that shows it again.
simulate: $(READY)
	@$(BIN)/python -m tests.simulator --seeds $(SEEDS) $(ARGS)

# Minutes of one core; standard output ends with one JSON object, and a violation comes with the command that shows it again.
explore: MINUTES = 10
explore: $(READY)
	@$(BIN)/python -m tests.explore --only "$(WORLDS)" --minutes $(MINUTES) --model $(ARGS)

# Standard output ends with one JSON object; without SEED any is taken, and told.
chaos: java $(READY)
	@$(BIN)/python -m tests.chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(ARGS)

# Standard output ends with the name of the page.
HOURS = 1
soak: java $(READY) spark-classes
	@$(BIN)/python -m tests.soak --hours $(HOURS) $(ARGS)

# Standard output ends with one JSON object.
TABLES = 300
drill: java $(READY)
	@$(BIN)/python -m tests.operating.loss_drill --tables $(TABLES) $(ARGS)

# Standard output ends with one JSON object; nothing is changed but a copy.
mutate: $(READY)
	@$(BIN)/python -m tests.mutations $(if $(ONLY),--only $(ONLY)) $(ARGS)

check: $(READY)
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/pyright --pythonpath $(BIN)/python
	@$(BIN)/lint-imports

# Ends with 1 when a count is above its number in tests/budget/budget.yaml, or far below it; ARGS=--lower writes the lower ones there.
budget: java $(READY)
	@$(BIN)/python -m tests.budget $(ARGS)

# The site's tools have an environment of their own: nothing else needs them.
DOCS_READY = .venv-docs/.ready-$(firstword $(shell cksum < pyproject.toml))

$(DOCS_READY): pyproject.toml
	@$(PYTHON) -m venv .venv-docs
	@.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@rm -f .venv-docs/.ready-*
	@touch $@

docs: $(DOCS_READY)
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/python -m mkdocs build --strict --clean $(ARGS)
	@echo "open site/index.html, or serve it: .venv-docs/bin/mkdocs serve"

# Standard output carries one JSON object per system and nothing else.
bench-commits: java $(READY)
	@$(BIN)/python -m benchmarks.commits --writers $(WRITERS) --seconds $(SECONDS) --latency-ms $(LATENCY_MS) \
		--ack $(ACK) --systems $(SYSTEMS) $(ARGS)

bench-engine: $(READY)
	@$(BIN)/python -m benchmarks.engine $(ARGS)

bench-snapshots: $(READY)
	@$(BIN)/python -m benchmarks.snapshots $(ARGS)

bench-checkpoints: $(READY)
	@$(BIN)/python -m benchmarks.checkpoints $(ARGS)

bench-log-tails: $(READY)
	@$(BIN)/python -m benchmarks.log_tails $(ARGS)

bench-clustering: java $(READY) $(DELTA_READY)
	@DELTA_PYTHON=$(CURDIR)/.venv-delta/bin/python $(BIN)/python -m benchmarks.clustering $(ARGS)

bench-overwrite: $(READY)
	@$(BIN)/python -m benchmarks.overwrite $(ARGS)

bench-console: java $(READY)
	@$(BIN)/python -m benchmarks.console $(ARGS)
bench-contention: java $(READY)
	@$(BIN)/python -m benchmarks.contention $(ARGS)

bench-quotas: java $(READY)
	@$(BIN)/python -m benchmarks.quotas $(ARGS)

bench-start: java $(READY)
	@$(BIN)/python -m benchmarks.start $(ARGS)

# Delta Lake goes with a PySpark of its own, so all systems run in an environment that has that one.
BENCH_SPARK_READY = .venv-bench-spark/.ready-$(firstword $(shell cat pyproject.toml benchmarks/spark_requirements.txt | cksum))

$(BENCH_SPARK_READY): pyproject.toml benchmarks/spark_requirements.txt
	@$(PYTHON) -m venv .venv-bench-spark
	@.venv-bench-spark/bin/python -m pip install --quiet --disable-pip-version-check -r benchmarks/spark_requirements.txt --editable '.[spark]'
	@rm -f .venv-bench-spark/.ready-*
	@touch $@

bench-spark: java $(BENCH_SPARK_READY)
	@.venv-bench-spark/bin/python -m benchmarks.spark $(ARGS)
	@.venv-bench-spark/bin/python -m benchmarks.spark_files $(FILES_ARGS)

bench-streams: java $(READY)
	@$(BIN)/python -m benchmarks.streams $(ARGS)

bench-scale: java $(READY)
	@$(BIN)/python -m benchmarks.scale $(ARGS)

clean:
	rm -rf $(VENV) $(CLOUDS) .tools .venv-connect .venv-delta .venv-docs .venv-bench-spark site build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
