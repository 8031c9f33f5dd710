"""A kernel: the compiled text of one stage of a cell.

The text is registered with `linecache`, so tracebacks and debuggers show it.
"""

from __future__ import annotations

import linecache
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from foldbatch.static.backends import Backend
from foldbatch.static.backends.levels import Base, spell
from foldbatch.static.codegen import Argument, Text


@dataclass(frozen=True, slots=True)
class Kernel:
    """A compiled stage.

    `function(*arrays)` takes what `arguments` list, in order, and returns one array (or
    SparseRows) per entry of `results`; each says what the value is: ``("value", i)`` output i,
    ``("loss", i)``, ``("metric", i)``, ``("cotangent", i)`` of operand i (``("stored", i)`` where it
    is in the buffer passed for it), ``("gradient",
    Parameter)``. `calls` counts the ops, each one pass over the rows; a loop is one. `source` ends
    with the loops that the kernel calls.
    """

    name: str
    source: str
    function: Callable[..., tuple[Any, ...]]
    arguments: tuple[Argument, ...]
    results: tuple[tuple[str, Any], ...]
    calls: int
    levels: LevelsKernel | None = None


@dataclass(frozen=True, slots=True)
class LevelsKernel:
    """A kernel that runs many levels: `function(bounds, *arrays)` takes what `bases` list, in order.

    ``bounds: [levels, 2] int64`` are the first call of each level and the first one after, in the order
    in which levels run. It returns nothing; results are put where the arrays say.
    """

    source: str
    function: Callable[..., None]
    bases: tuple[Base, ...]


def load(
    name: str,
    text: Text,
    results: tuple[tuple[str, Any], ...],
    backend: Backend,
    levels: LevelsKernel | None = None,
) -> Kernel:
    """Compile a kernel's text; `levels` is the same for many levels at once."""
    # two programs may have cells of one name, so the text itself tells the registered texts apart
    filename = f"<foldbatch {backend.name} kernel {name} {zlib.crc32(text.source.encode()):08x}>"
    scope: dict[str, Any] = {**backend.globals, **text.constants}
    if backend.loops is not None:
        scope |= {loop: backend.loops.compile(source) for loop, source in text.loops.items()}
    scope |= backend.called_by(text.source)
    exec(compile(text.source, filename, "exec"), scope)  # noqa: S102 - the text is our own
    linecache.cache[filename] = (len(text.source), None, text.source.splitlines(keepends=True), filename)
    function = scope[text.source.split("(", 1)[0].removeprefix("def ")]
    loops = [source.replace("def loop(", f"def {loop}(") for loop, source in text.loops.items()]
    source = "\n".join([text.source, *loops])
    return Kernel(name, source, function, text.arguments, results, text.calls, levels)


# What becomes of a result in a loop over levels; what is stored has been put there already.
_RESULTS = {"value": "value", "cotangent": "sum", "stored": ""}


def load_levels(
    text: Text, whats: tuple[tuple[str, Any], ...], backend: Backend, more: tuple[Base, ...] = ()
) -> LevelsKernel | None:
    """Compile a kernel's text for many levels at once; None where that cannot be.

    Args:
        text: the kernel's.
        whats: of its results.
        backend: to compile for.
        more: what is made of what the kernel leaves, besides its results.
    """
    if text.body is None or backend.loops is None or any(kind not in _RESULTS for kind, _ in whats):
        return None
    results = [
        (value, Base(_RESULTS[kind], key, node.shape, node.dtype))
        for (kind, key), (value, node) in zip(whats, text.body.results, strict=True)
        if _RESULTS[kind]
    ]
    levels = spell(text.body.given, text.body.lines, [*results, *(("", base) for base in more)])
    if levels is None:
        return None
    function = backend.loops.compile_levels(levels.source, tuple(text.loops.values()))
    return LevelsKernel(levels.source, function, levels.bases)
