# One set of commands for people and for CI. Each sets up .venv first if need be.
# A file's tests share fixtures, so one worker has them all. Three workers: tests wait as much as they compute, but more
# judges would disturb each other; for the same reason programs get one thread, because threads of several programs wait
# for each other on shared cores.
# Bytecode is kept whatever the environment says: without it, each worker compiles all tests for seven seconds.
PYTEST = OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= .venv/bin/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

.PHONY: demo test test-long test-fast exploits chaos check docs bench setup clean

setup:
	@scripts/setup

demo: setup  ## optimize an example with recorded replies; builds, checks and timings are live
	@scripts/demo

test: setup  ## all tests that this machine can run, without the longest
	$(PYTEST) -m "not long"

test-long: setup  ## the longest, which say little that faster tests do not say
	$(PYTEST) -m long

test-fast: setup  ## tests that start no judge and take at most about half a second each
	$(PYTEST) -m "not slow"

exploits: setup  ## every known trick against the judge, and honest candidates that look like one
	.venv/bin/python tests/exploits/run_exploits.py

chaos: setup  ## kills what a bench on a cluster needs, and lets 8 processes write to one PostgreSQL server
	.venv/bin/python benchmarks/orchestrators.py
	.venv/bin/python benchmarks/chaos.py
	.venv/bin/python benchmarks/orphans.py

check: setup  ## style, types and the import floors
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports

docs: setup  ## the site of the documents, with the reference, in build/site
	@scripts/docs

bench: setup  ## speed of the search itself
	.venv/bin/python benchmarks/search.py
	.venv/bin/python benchmarks/bookkeeping.py
	.venv/bin/python benchmarks/startup.py
	.venv/bin/python benchmarks/scale.py --problems 16

clean:  ## leaves .stark, where runs are kept
	rm -rf .venv
