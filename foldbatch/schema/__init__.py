"""Schemas of JSON data: inferred from samples, printed, kept as plain data, and made into blocks."""

from foldbatch.schema.schema import Comparison, Schema, infer

__all__ = ["Comparison", "Schema", "infer"]


def __dir__() -> list[str]:
    return __all__
