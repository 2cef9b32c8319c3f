# Every verb makes what it needs: a fresh clone runs `make demo` or `make test` at once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test check format clean
.DEFAULT_GOAL := demo

demo: $(INSTALLED)  ## set up, fetch both encoders, localise a real photograph and sound
	$(BIN)/soundspot weights fetch vgg16-imagenet
	$(BIN)/soundspot weights fetch yamnet-audioset
	$(BIN)/soundspot demo --out out

test: $(INSTALLED)  ## the whole test suite
	$(BIN)/pytest -q

check: $(INSTALLED)  ## formatting, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(INSTALLED)  ## mend what can be mended without thinking
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## remove all that the other verbs made here; the weights' cache stays
	rm -rf $(VENV) out build dist .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp is touched last: an interrupted installation is taken up again.
$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]' --constraint constraints.txt
	touch $@
