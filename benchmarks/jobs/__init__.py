"""Jobs: real questions about data with structure, and what a model of ours answers beside the usual ones."""
