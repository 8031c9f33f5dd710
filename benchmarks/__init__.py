"""The benchmarks of foldbatch, beside the package and not in it: ``python -m benchmarks``."""
