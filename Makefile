# Two commands do everything: `make demo` and `make test`. Both set up what they need in .venv.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e
LAB := .venv/.lab
READY := .venv/.ready

.PHONY: demo test lint results docs bench soak clean

$(LAB): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) ".[lab]"
	touch $@

$(READY): $(LAB)
	$(INSTALL) ".[dev]"
	touch $@

demo: $(LAB)  ## train, compare, leave a page to look at
	$(BIN)/grokfast demo

test: lint  ## lint, type-check, run the whole suite
	$(BIN)/pytest -q

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/pyright -p tests

results: $(LAB)  ## write docs/results.md, its figures, the README's answer and the demo's evidence, from results/ alone
	$(BIN)/grokfast results results -o docs/results.md --summary README.md --evidence src/grokfast/lab/report/evidence.json

docs: $(READY)  ## build the documentation site into site/; a broken link or a page that nothing links to is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(READY)  ## ratios against peers and against the memory limit
	$(BIN)/python benchmarks/filters.py
	$(BIN)/python benchmarks/modmul.py
	$(BIN)/python benchmarks/tasks.py
	$(BIN)/python benchmarks/sweep.py

soak: $(READY)  ## faults on purpose: kill -9, damaged files, a full disk, many processes; a few minutes
	$(BIN)/python benchmarks/soak.py

clean:
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis
