"""Options of `foldbatch.compile` as tests write them: flat, in one mapping with its other arguments."""

from collections.abc import Mapping
from typing import Any

from foldbatch.program.compiling import OPTIONS


def knobs(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of `compile`, those that belong into its mapping `options` in it."""
    made = {name: value for name, value in arguments.items() if name not in OPTIONS}
    options = {name: value for name, value in arguments.items() if name in OPTIONS}
    return {**made, "options": options} if options else made
