# The verbs of the house; CI runs .ci/run, which is `check` in a clean environment.
.PHONY: setup check test format bench extras-lowest

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

# The extras at the lowest versions that are allowed; CI has the highest. Needs an index of packages.
extras-lowest:
	.ci/lowest
