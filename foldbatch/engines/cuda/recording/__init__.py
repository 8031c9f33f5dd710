"""Recording: what a GPU is asked, written down, delayed and guarded, and checks of that."""
