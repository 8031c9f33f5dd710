"""What is not collected: modules that import what is not installed."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("numba") else ["foldbatch/engines/numba/*", "tests/engines/numba/*"]
if not find_spec("sklearn"):
    collect_ignore_glob.append("foldbatch/estimators.py")
