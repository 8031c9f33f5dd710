"""Drivers: a GPU, or what stands for one, as the engine sees it."""
