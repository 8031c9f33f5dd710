"""Statements of a tracing program as lines of text, for tests that compare them."""

from __future__ import annotations

from typing import Any

from foldbatch.blocks import printing
from foldbatch.blocks.builder import Builder
from foldbatch.blocks.drafts import Procedure
from foldbatch.blocks.tracing import Body


def lines_of(body: Body, functions: dict[str, Procedure] | None = None) -> list[str]:
    """Return statements as lines, one step of indentation less than in their function."""
    printer: Any = printing._Printer(functions or {}, careful=True)
    return [line for line, _ in printer.body(body, 0)] if body else []


def lines(builder: Builder, function: int = 0) -> list[str]:
    """Return the lines of a function; of the one that is being built, those so far."""
    body = builder.functions[function].body or tuple(builder._body)
    return lines_of(body, {f.name: f for f in builder.functions})
