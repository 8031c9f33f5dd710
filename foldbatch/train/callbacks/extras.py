"""Libraries that only some callbacks need, imported when one is made."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from foldbatch.errors import BackendError


def imported(module: str, extra: str, where: str) -> Any:
    """Return a module of an optional library.

    Args:
        module: its name.
        extra: the name of what installs it with foldbatch.
        where: who needs it, for the error.

    Raises:
        BackendError: when it is not installed.

    >>> imported("json", "plot", "here").dumps([1])
    '[1]'
    """
    try:
        return import_module(module)
    except ImportError as error:
        library, fix = module.partition(".")[0], f"pip install 'foldbatch[{extra}]'"
        raise BackendError(where, f"{library} to be installed", str(error), fix) from None
