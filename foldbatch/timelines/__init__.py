"""Timelines: what ran when, as data, as a table, as a trace for browsers and as a picture."""

from foldbatch.timelines.timeline import Timeline

__all__ = ["Timeline"]
