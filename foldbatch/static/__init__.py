"""The computation, compiled once: graphs of tensor ops, their derivatives, cells and kernels."""
