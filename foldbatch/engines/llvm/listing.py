"""A kernel as people read it: its statements, one a line, and the texts of its fused loops."""

from __future__ import annotations

from foldbatch.engines.llvm.loop_texts import spell
from foldbatch.static.printer import print_routine
from foldbatch.static.statements import Routine


def listing(title: str, routine: Routine) -> str:
    """Return a kernel's statements and results, and the texts of the loops among them, in order."""
    loops = [statement.loop for statement in routine.statements if statement.loop is not None]
    texts = [f"# loop {i} of {title}\n{spell(loop)}" for i, loop in enumerate(loops)]
    return "\n\n".join([f"# {title}\n{print_routine(routine)}", *texts])
