"""Models: cells linked with each other, without kernels, and what is made of them for an engine."""
