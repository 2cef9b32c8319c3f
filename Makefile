# Every target sets up what it needs: `make demo` and `make test` work in a fresh clone.
PYTHON ?= python3
PATHS ?= soundspot/model/losses.py soundspot/model/pcm.py
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo page test test-fast check docs fuzz mutants release format clean
.DEFAULT_GOAL := demo

demo: $(INSTALLED)  ## set up, fetch the encoders, localize a sound in a real photograph
	$(BIN)/soundspot weights fetch vgg16-imagenet
	$(BIN)/soundspot weights fetch mobilenetv2-imagenet
	$(BIN)/soundspot weights fetch yamnet-audioset
	$(BIN)/soundspot demo --out out

test: $(INSTALLED)  ## the whole test suite, one process per core
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -n auto

test-fast: $(INSTALLED)  ## for the edit loop: without the tests that are marked slow
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -n auto -m "not slow"

page: $(INSTALLED)  ## build the page for the browser into soundspot/page; needs npm
	$(BIN)/python page/build.py

fuzz: $(INSTALLED)  ## read 2,000 damaged files of all kinds: no traceback, hang or large memory
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python .ci/fuzz.py --count 2000 --seed 0

mutants: $(INSTALLED)  ## break PATHS=soundspot/model/pcm.py in small ways: do its tests notice?
	OMP_NUM_THREADS=1 $(BIN)/python .ci/mutants.py $(PATHS)

check: $(INSTALLED)  ## formatting, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(INSTALLED)  ## the documentation as a site in build/site; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

release: $(INSTALLED)  ## check and build sdist and wheel, and try the wheel; uploads nothing
	$(BIN)/python .ci/release.py

format: $(INSTALLED)  ## fix what can be fixed automatically
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## remove what the other targets made here; the weight cache stays
	rm -rf $(VENV) out build dist .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp is touched last, so that an interrupted installation is resumed.
$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]' --constraint constraints.txt
	touch $@
