"""The NumPy engine: a kernel is a Python function that calls NumPy, and Python walks the launch table."""
