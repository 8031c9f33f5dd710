"""Compiling loops with Numba, once per text and machine; see `foldbatch.compiling` for where it is kept."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from functools import cache, lru_cache, partial
from types import ModuleType
from typing import Any

from foldbatch.compiling import compile_text, numba

FORM = "1"  # of the compiled code, where that is not seen in the texts below


@lru_cache(4096)
def compile_loop(text: str) -> Callable[..., None]:
    """Return a loop's function, compiled for the types that its first line tells and for no others.

    Raises:
        BackendError: when Numba is not installed.
    """
    numba()
    known = f"{FORM}\n{inspect.getsource(_vector_functions())}\n{text}"
    digest = hashlib.sha256(known.encode()).hexdigest()[:20]
    return compile_text(f"loop_{digest}", text, partial(_compiled, text))


@cache
def _vector_functions() -> ModuleType:
    from foldbatch.static.backends import vector_functions  # noqa: PLC0415 - it needs Numba

    return vector_functions


def _compiled(text: str, filename: str, keep: bool) -> Callable[..., None]:  # noqa: FBT001
    functions = _vector_functions()
    # what is read back from disk looks for the module that it came from
    scope: dict[str, Any] = {**functions.GLOBALS, "__name__": functions.__name__}
    exec(compile(text, filename, "exec"), scope)  # noqa: S102 - the text is our own
    signature = functions.signature(text.split("\n", 1)[0].removeprefix("# "))
    compiled: Callable[..., None] = numba().njit(signature, cache=keep, **functions.OPTIONS)(scope["loop"])
    return compiled
