"""The benchmark harness: ``python -m foldbatch.bench``."""
