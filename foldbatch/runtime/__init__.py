"""Schedules run: arenas, kernels in order, results taken apart again."""
