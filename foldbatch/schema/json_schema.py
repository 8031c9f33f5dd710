"""Schemas of records in the form of JSON Schema (draft 2020-12), and a small record that fits one."""

from typing import Any

from foldbatch.schema import kinds
from foldbatch.schema.moments import written

PlainSchema = dict[str, Any]


def json_schema(place: kinds.DataPosition) -> PlainSchema:
    """Return the JSON Schema of the values at one place: those of the samples' kinds, and null.

    Fields are named and not required, and further fields are let be: a model reads what it knows.

    >>> from foldbatch.schema import infer
    >>> json_schema(infer([{"age": 36}]).root)["properties"]
    {'age': {'type': ['integer', 'null'], 'examples': [36]}}
    """
    schemas = [_of_kind(kind) for kind in place.kinds]
    if len(schemas) == 1:
        (schema,) = schemas
        return schema | {"type": [schema["type"], "null"]}
    return {"anyOf": [*schemas, {"type": "null"}]}


def _of_kind(kind: kinds.Kind) -> PlainSchema:
    """Return the JSON Schema of the values of one kind, with an example."""
    example = {"examples": [_value_of(kind)]}
    match kind:
        case kinds.Flags():
            return {"type": "boolean"}
        case kinds.Number():
            return {"type": "integer" if kind.whole else "number"} | example
        case kinds.Category() | kinds.Text():
            return {"type": "string"} | example
        case kinds.Moments():  # JSON Schema asks a time for its zone, which few data have
            return {"type": "string"} | ({"format": "date"} if kind.form == "date" else {}) | example
        case kinds.ListOf():
            return {"type": "array", "items": json_schema(kind.item)}
        case kinds.Dictionary():
            return {"type": "object", "additionalProperties": json_schema(kind.value)}
        case kinds.Fields():
            fields = {name: json_schema(inner) for name, inner in kind.fields.items()}
            return {"type": "object", "properties": fields}


def record_like(place: kinds.DataPosition) -> object:
    """Return a value such as the samples had at one place.

    >>> from foldbatch.schema import infer
    >>> record_like(infer([{"name": "ada", "tags": ["a", "b"]}, {"name": "bob", "tags": []}]).root)
    {'name': 'ada', 'tags': ['a']}
    """
    return _value_of(place.kinds[0]) if place.kinds else None


def _value_of(kind: kinds.Kind) -> object:
    """Return a value such as the samples had of a kind: a typical one, or the most frequent."""
    match kind:
        case kinds.Flags():
            return True
        case kinds.Number():
            return round(kind.mean) if kind.whole else kind.mean
        case kinds.Category():
            return kind.values[0][0]
        case kinds.Text():
            return kind.examples[0]
        case kinds.Moments():
            return written(kind.form, kind.mean)
        case kinds.ListOf():
            return [record_like(kind.item)] if kind.item.kinds else []
        case kinds.Dictionary():
            return {record_like(kind.key): record_like(kind.value)}
        case kinds.Fields():
            return {name: record_like(inner) for name, inner in kind.fields.items()}
