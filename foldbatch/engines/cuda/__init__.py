"""The CUDA engine: kernels generated for a model, launched by the launch table on a GPU."""
