"""Models: cells linked with each other, without kernels, and the models derived from them."""
