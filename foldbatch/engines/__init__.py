"""Engines: what makes kernels of a Model and runs Schedules."""
