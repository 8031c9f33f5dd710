"""A kernel as people read it: its statements, one a line, and the texts of its fused loops."""

from __future__ import annotations

import zlib

from foldbatch.engines.numba.coder import contiguous
from foldbatch.engines.numba.loop_texts import spell
from foldbatch.static.loops import Loop
from foldbatch.static.statements import Place, Routine, Statement


def loop_name(text: str) -> str:
    """Return what a loop is called: by its text, so that equal ones are one.

    >>> loop_name("# f4")
    'loop_b99da1b8'
    """
    return f"loop_{zlib.crc32(text.encode()):08x}"


def listing(title: str, routine: Routine) -> str:
    """Return a kernel's statements and results, and the loops that it calls."""
    texts = {spell(s.loop): None for s in routine.statements if s.loop is not None}
    lines = [f"# {title}", *(f"{_slot(routine, i)} = {s.type} {s.axis}" for i, s in enumerate(routine.slots))]
    lines += [_statement(routine, statement) for statement in routine.statements]
    lines += [f"{r.binding.kind} {_key(r.binding.key)} = {_place(routine, r.place)}" for r in routine.results]
    loops = [text.replace("def loop(", f"def {loop_name(text)}(") for text in texts]
    return "\n\n".join(["\n".join(lines), *loops])


def _statement(routine: Routine, statement: Statement) -> str:
    if isinstance(statement.loop, Loop):
        arguments = ", ".join(
            [*["n"] * statement.loop.batched, *(_slot(routine, i) for i in statement.slots)]
        )
        return f"{loop_name(spell(statement.loop))}({arguments})"
    reads = ", ".join(_place(routine, read) for read in statement.reads if read is not None)
    attrs = "".join(f", {name}={value!r}" for name, value in statement.attrs.items())
    written = f"{_place(routine, statement.write)} = " if statement.write is not None else ""
    return f"{written}{statement.op}({reads}{attrs})"


def _key(key: object) -> str:
    return str(key) if isinstance(key, int) else str(getattr(key, "name", "array"))


def _slot(routine: Routine, number: int) -> str:
    binding = routine.slots[number].binding
    return (
        f"{binding.kind}{number}"
        if not isinstance(binding.key, int)
        else f"{binding.kind}{number}_{binding.key}"
    )


def _place(routine: Routine, place: Place) -> str:
    """Return a slot's name, with the part of its rows where it is not all of them."""
    name, whole = _slot(routine, place.slot), routine.slots[place.slot].type.shape
    if place.offset == 0 and place.shape == whole and place.strides == contiguous(whole):
        return name
    shape, strides = "x".join(map(str, place.shape)) or "1", " ".join(map(str, place.strides))
    return f"{name}[{place.offset}; {shape}; {strides}]"
