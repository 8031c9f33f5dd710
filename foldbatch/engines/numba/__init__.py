"""The engine that compiles with Numba: all that runs of a batch is machine code."""
