"""A compiled block, and what makes, saves and loads it."""

from foldbatch.engines.batch import Planned
from foldbatch.program.compiling import compile, load
from foldbatch.program.program import Program, schedule
from foldbatch.program.saving import read_notes

__all__ = ["Planned", "Program", "compile", "load", "read_notes", "schedule"]
