# The same commands that CI runs. PYTHON is the interpreter of the environment that has `.[dev]`.
PYTHON ?= $(if $(wildcard .venv/bin/python),.venv/bin/python,python3)
# Tests must not depend on how many threads the numeric libraries would take.
export OMP_NUM_THREADS ?= 1

.PHONY: help check lint types floors spelling format test test-slow fault fault-all all

help: ## these targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

check: lint types floors spelling ## everything that needs no run: lint, format, types, floors, spelling

lint:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

types:
	$(PYTHON) -m pyright --pythonpath "$$($(PYTHON) -c 'import sys; print(sys.executable)')"

floors:
	$(PYTHON) -c "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())"

spelling:
	$(PYTHON) -m codespell_lib .

format: ## format and fix what can be fixed
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

test: ## the quick tests (a few minutes on two cores)
	$(PYTHON) -m pytest

test-slow: ## learning thresholds and long runs
	$(PYTHON) -m pytest -m "slow and not gpu" --timeout 1200

fault: ## killed, stopped and starved processes
	$(PYTHON) -m pytest -m "fault and not gpu" --timeout 300

fault-all: ## every cell of the fault table
	$(PYTHON) -m pytest -m "(fault or fault_all) and not gpu" --timeout 300

all: check test fault test-slow ## all of the above
