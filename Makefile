# `make` lists the targets. Each sets up what it needs in .venv.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e
LAB := .venv/.lab
RELEASE := .venv/.release
READY := .venv/.ready

.PHONY: help demo test lint results docs notebook bench soak dist clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(LAB): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) ".[lab]"
	touch $@

$(RELEASE): $(LAB)
	$(INSTALL) ".[release]"
	touch $@

$(READY): $(LAB)
	$(INSTALL) ".[dev]"
	touch $@

demo: $(LAB)  ## train, compare, leave a page to look at
	$(BIN)/grokfast demo

test: lint  ## lint, type-check, run the whole suite
	$(BIN)/pytest -q

lint: $(READY)  ## ruff and pyright
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/pyright -p tests

results: $(LAB)  ## write results, verdicts and leaderboard in docs/, their pictures and the README's answer, from results/ alone
	$(BIN)/python tools/pages.py

notebook: $(READY)  ## run examples/researcher.py cell by cell and write it as a notebook
	$(BIN)/python tools/notebook.py examples/researcher.py examples/researcher.ipynb

docs: $(READY)  ## build the documentation site into site/; a broken link or a page that nothing links to is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(READY)  ## ratios against peers and against the memory limit
	$(BIN)/python benchmarks/filters.py
	$(BIN)/python benchmarks/modmul.py
	$(BIN)/python benchmarks/tasks.py
	$(BIN)/python benchmarks/sweep.py
	$(BIN)/python benchmarks/playground.py

soak: $(READY)  ## faults on purpose: kill -9, damaged files, a full disk, many processes; a few minutes
	$(BIN)/python benchmarks/soak.py

dist: $(RELEASE)  ## build wheel and sdist, check them, try the wheel in an empty environment
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*
	$(BIN)/python tools/try_dist.py dist

clean:  ## remove .venv, caches and dist
	rm -rf dist .venv .pytest_cache .ruff_cache .hypothesis
