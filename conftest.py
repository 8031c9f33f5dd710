"""What is not collected: modules that import what is not installed."""

from importlib.util import find_spec

NEED_NUMBA = ("memory", "products", "tiles", "vector_functions", "walker")
collect_ignore = [] if find_spec("numba") else [f"foldbatch/engines/numba/{name}.py" for name in NEED_NUMBA]
