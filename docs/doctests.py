"""What griffe does besides: examples in docstrings become blocks of code, wherever they stand."""

from __future__ import annotations

from typing import Any

import griffe


class Doctests(griffe.Extension):
    """Puts a fence around each doctest, which ends at an empty line."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite an object's docstring."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    r"""Return a docstring with fences.

    >>> print(fenced("Add.\n\n>>> 1 + 1\n2\n\nMore."))
    Add.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    <BLANKLINE>
    More.
    """
    lines: list[str] = []
    inside = ""  # the indentation of the fence that is open, with a mark
    for line in [*text.splitlines(), ""]:
        if line.lstrip().startswith(">>>") and not inside:
            inside = line[: len(line) - len(line.lstrip())] + "|"
            lines.append(f"{inside[:-1]}```pycon")
        elif inside and not line.strip():
            lines.append(f"{inside[:-1]}```")
            inside = ""
        lines.append(line)
    return "\n".join(lines[:-1] if lines[-1] == "" else lines)
