"""The benchmark for a GPU: first whether the CUDA engine is right on it, then how fast, beside PyTorch."""
