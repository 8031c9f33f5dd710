"""Models: cells linked with each other, without kernels, and what is made of a model before an engine gets it."""
