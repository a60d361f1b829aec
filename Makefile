# Everything from a bare Python 3.11 with pip: `make study`, `make test`.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
CORES ?= all
EXPERIMENT ?= demo
VENV := .venv
STAMP := $(VENV)/.installed
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export HF_HUB_OFFLINE ?= 1
export TOKENIZERS_PARALLELISM := false

.PHONY: setup study test test-fast lint clean

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	@echo "Setting up $(VENV) (about two minutes, 2.3 GB) ..."
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --no-deps --requirement requirements.lock
	$(VENV)/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

study: $(STAMP)
	@speedstudy recover
	@snakemake --cores $(CORES) --config experiment=$(EXPERIMENT)
	@echo "Figures: results/pareto.pdf results/acceptance.pdf results/random_vs_real.pdf; table: results/tables/cells.csv"

test: $(STAMP)
	pytest -n 2 -m "not engine and not workflow"
	pytest -m "engine or workflow"

lint: $(STAMP)
	ruff check .
	ruff format --check .
	mypy
	snakefmt --check Snakefile rules
	snakemake --lint

clean:
	rm -rf results/* resources/* logs .snakemake
