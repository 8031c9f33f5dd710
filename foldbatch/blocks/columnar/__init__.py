"""Columns: tracing many examples by array operations, where all that blocks read of them is a few fields."""
