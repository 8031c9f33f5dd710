"""What is not collected: modules that import what is not installed."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("numba") else ["foldbatch/static/backends/vector_functions.py"]
