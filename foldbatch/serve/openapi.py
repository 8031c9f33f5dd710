"""The description of the server: a document of OpenAPI, and a page made of it that needs no other server."""

import json
from collections.abc import Mapping
from html import escape
from typing import Any

import foldbatch
from foldbatch.serve.service import Limits
from foldbatch.trees.formats import FORMATS

ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"type": "string", "description": "where: expected X, found Y; how to fix"}},
}
PREDICTION = {
    "description": "what the model tells of one example",
    "oneOf": [
        {
            "type": "object",
            "required": ["label", "probabilities"],
            "properties": {
                "name": {"type": "string"},
                "label": {"type": "string"},
                "probabilities": {"type": "object", "additionalProperties": {"type": "number"}},
                "nodes": {"type": "array", "items": {"type": "object"}},
                "warning": {"type": "string"},
            },
        },
        {
            "type": "object",
            "required": ["number"],
            "properties": {"number": {"type": "number"}, "warning": {"type": "string"}},
        },
        {"type": "object", "required": ["result"], "properties": {"result": {}}},
        ERROR,
    ],
}
STATUSES = {
    "400": "the request as a whole cannot be read",
    "408": "the body did not arrive in time",
    "413": "the body is too large, or holds too many examples",
    "415": "the body is of a kind that is not read",
    "422": "none of the examples could be read; predictions say why",
    "431": "address and headers are too long",
    "500": "the server failed on an example; its log says more",
    "503": "too much waits, is read or is open already; Retry-After says when to ask again",
    "504": "the deadline passed",
}


def document(format_: str, limits: Limits) -> dict[str, Any]:
    """Return the description of the server in the form of OpenAPI 3.1.

    >>> sorted(document("sst", Limits())["paths"])
    ['/', '/healthz', '/metrics', '/openapi.json', '/predict']
    """
    sample = FORMATS[format_].sample
    body = {
        "type": "object",
        "required": ["examples"],
        "additionalProperties": False,
        "properties": {
            "examples": {"type": "array", "minItems": 1, "maxItems": limits.examples},
            "nodes": {"type": "boolean", "default": False, "description": "tell every node, too"},
            "deadline": {"type": "number", "exclusiveMinimum": 0, "maximum": limits.deadline},
        },
    }
    answer = {
        "type": "object",
        "required": ["predictions"],
        "properties": {"predictions": {"type": "array", "items": PREDICTION}},
    }
    text = sample if isinstance(sample, str) else json.dumps(sample)
    predict = {
        "summary": "Predictions of examples, in their order",
        "description": f"Examples are of the format {format_}, as files that foldbatch predict reads. "
        f"One may have {limits.nodes:,} nodes and {limits.depth:,} levels, a body {limits.body:,} bytes.",
        "parameters": [
            _parameter("nodes", "query", "boolean", "tell every node, too"),
            _parameter("deadline", "query", "number", "seconds that the request may take"),
            _parameter("Deadline-Seconds", "header", "number", "the same"),
        ],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": body, "example": {"examples": [sample]}},
                "application/x-ndjson": {"schema": {"type": "string"}, "example": json.dumps(sample)},
                "text/plain": {"schema": {"type": "string"}, "example": text},
            },
        },
        "responses": {
            "200": _response("a prediction or an error for each example", answer),
            **{
                status: _response(what, answer if status in ("422", "500") else ERROR)
                for status, what in STATUSES.items()
            },
        },
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "foldbatch serve", "version": foldbatch.__version__},
        "paths": {
            "/predict": {"post": predict},
            "/healthz": _get("Whether requests are taken: ready, or draining with status 503"),
            "/metrics": _get("Figures in the text format of Prometheus"),
            "/openapi.json": _get("This document"),
            "/": _get("The model: format, task and classes"),
        },
    }


def page(described: Mapping[str, Any]) -> str:
    """Return a page of HTML that shows a document of OpenAPI; it loads nothing from elsewhere.

    >>> "<h2>POST /predict</h2>" in page(document("sst", Limits()))
    True
    """
    title = escape(f"{described['info']['title']} {described['info']['version']}")
    parts = [f"<h1>{title}</h1>"]
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            parts.append(f"<h2>{method.upper()} {escape(path)}</h2><p>{escape(operation['summary'])}.</p>")
            if "description" in operation:
                parts.append(f"<p>{escape(operation['description'])}</p>")
            parts += _rows(
                "parameter", {p["name"]: p["description"] for p in operation.get("parameters", ())}
            )
            for kind, content in operation.get("requestBody", {}).get("content", {}).items():
                shown = content["example"]
                shown = shown if isinstance(shown, str) else json.dumps(shown, indent=2)
                parts.append(f"<h3>{escape(kind)}</h3><pre>{escape(shown)}</pre>")
            responses = operation["responses"].items()
            parts += _rows("status", {status: response["description"] for status, response in responses})
    style = "body{font:16px sans-serif;max-width:50em;margin:2em auto}pre{background:#eee;padding:1em}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f"<style>{style}td{{padding:0 1em 0 0}}</style>{''.join(parts)}</html>"
    )


def _parameter(name: str, place: str, kind: str, what: str) -> dict[str, Any]:
    return {"name": name, "in": place, "required": False, "description": what, "schema": {"type": kind}}


def _response(what: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": what, "content": {"application/json": {"schema": schema}}}


def _get(what: str) -> dict[str, Any]:
    return {"get": {"summary": what, "responses": {"200": {"description": "it"}}}}


def _rows(head: str, rows: Mapping[str, str]) -> list[str]:
    cells = [f"<tr><td><code>{escape(name)}</code><td>{escape(what)}" for name, what in rows.items()]
    return [f"<h3>{head}</h3><table>{''.join(cells)}</table>"] if rows else []
