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


def load(name: str, text: Text, results: tuple[tuple[str, Any], ...], backend: Backend) -> Kernel:
    """Compile a kernel's text."""
    # two programs may have cells of one name, so the text itself tells the registered texts apart
    filename = f"<foldbatch {backend.name} kernel {name} {zlib.crc32(text.source.encode()):08x}>"
    scope: dict[str, Any] = {**backend.globals, **text.constants}
    if backend.loops is not None:
        scope |= {loop: backend.loops.compile(source) for loop, source in text.loops.items()}
    scope |= {called: make() for called, make in backend.compiled.items() if f"{called}(" in text.source}
    exec(compile(text.source, filename, "exec"), scope)  # noqa: S102 - the text is our own
    linecache.cache[filename] = (len(text.source), None, text.source.splitlines(keepends=True), filename)
    function = scope[text.source.split("(", 1)[0].removeprefix("def ")]
    loops = [source.replace("def loop(", f"def {loop}(") for loop, source in text.loops.items()]
    return Kernel(name, "\n".join([text.source, *loops]), function, text.arguments, results, text.calls)
