"""Traces to schedules: integers only, no tensors, no blocks."""
