"""Marks on functions that `torch.compile` leaves out of its graphs, set without an import of PyTorch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import wraps
from types import FunctionType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def left_out(method: F) -> F:
    """Return a method that `torch.compile` neither reads nor looks into while it runs.

    PyTorch's compiler takes more than a second to import, so that is left to those who compile.
    """
    disabled: list[Callable[..., Any]] = []

    @wraps(method)
    def outside(*args: object, **kwargs: object) -> Any:
        """Call the method; where PyTorch's compiler is loaded, call it through `torch.compiler.disable`."""
        if "torch._dynamo" not in sys.modules:
            return method(*args, **kwargs)
        if not disabled:
            torch: Any = sys.modules["torch"]
            disabled.append(torch.compiler.disable(method, reason="foldbatch runs it as it is"))
        return disabled[0](*args, **kwargs)

    mark(outside)
    return outside  # type: ignore[return-value]


def mark(function: Callable[..., object]) -> None:
    """Let `torch.compile` call a function instead of reading its code; calls inside of it may be read.

    The mark is what `torch.compiler.disable` sets.
    """
    function.__dict__["_torchdynamo_disable"] = True


def mark_all(scope: Mapping[str, object], module: str) -> None:
    """Mark the functions and properties of a class or module, those that a module defines."""
    for member in scope.values():
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if isinstance(function, FunctionType) and function.__module__ == module:
            mark(function)
