# The verbs of the house; CI runs .ci/run, which is `check` in a clean environment.
.PHONY: setup check test format bench lowest matrix package

setup:
	[ -x .venv/bin/python ] || python3 -m venv .venv
	.venv/bin/python -m pip install --quiet -e '.[dev]'

test:
	.venv/bin/python -m pytest -n auto --dist worksteal

format:
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

check: test
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/lint-imports

bench:
	.venv/bin/python -m benchmarks

# All dependencies at the lowest versions that are allowed, as CI tries them, too. Needs an index of packages.
lowest:
	.ci/lowest

# README's tests on each version of Python that the package allows and this machine has.
matrix:
	.ci/matrix

# Builds the package, and trains README's first example from the wheel in an empty environment.
package:
	.venv/bin/python -m pip install --quiet -e '.[package]'
	.ci/package
