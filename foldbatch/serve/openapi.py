"""The description of a server in the form of OpenAPI 3.1, made of the types that requests are read by.

Bodies are those that `Ask` and `Inference` read. Examples are what the model's format and schema say, answers
what its classes and the type of its results say.

Source: https://spec.openapis.org/oas/v3.1.0.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

import foldbatch
from foldbatch.program.predicting import MOST_WORDS, spelled
from foldbatch.recipes.fitting import SCRIPTED
from foldbatch.schema.json_schema import json_schema, record_like
from foldbatch.serve.inference import INPUT, Inference, Inferred, ModelMetadata, ServerMetadata, metadata
from foldbatch.serve.predict import JSON, Ask
from foldbatch.serve.service import Limits, ServedModel
from foldbatch.trees.formats import FORMATS
from foldbatch.types import BroadcastType, NestType, SequenceType, TensorType, TupleType

PlainSchema: TypeAlias = dict[str, Any]  # of JSON
REFERENCE = "#/components/schemas/{name}"
STATUSES = {  # of routes that predict
    400: "the request as a whole cannot be read",
    408: "the body did not come in time, or the request's own deadline passed",
    413: "the body is too large",
    415: "the body is of a kind that is not read",
    422: "no example could be read, or they are too many",
    500: "the server failed on an example; its log says more",
    503: "too much waits or is being read; Retry-After has the seconds until there will be room",
    504: "the server's deadline passed",
}
PARTLY = (422, 500)  # whose answers from /predict have an entry for each example, where it was read
KINDS = {"float32": "number", "float64": "number", "int32": "integer", "int64": "integer", "bool": "boolean"}
NAME: PlainSchema = {"type": "string", "description": "that the example gives itself, such as a function's"}
WARNING: PlainSchema = {"type": "string", "description": "what is odd of the example, though it was answered"}


def document(name: str, model: ServedModel, limits: Limits) -> PlainSchema:
    """Return the description of a server of a model that is called by a name."""
    schemas = _schemas(model, limits)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": f"{name}, served by foldbatch",
            "version": foldbatch.__version__,
            "description": f"Predictions of a {model.name}. An example may have {limits.nodes:,} nodes and "
            f"{limits.depth:,} levels, a request {limits.examples:,} examples and {limits.body:,} bytes.",
        },
        "paths": _paths(name, model),
        "components": {"schemas": schemas},
    }


def sample_of(model: ServedModel) -> object:
    """Return a small example of those that a model reads: its schema's, or its format's; None of a script."""
    if model.configuration is SCRIPTED:
        return None
    return record_like(model.schema.root) if model.schema else FORMATS[_format(model)].sample


def _format(model: ServedModel) -> str:
    return model.configuration.data.format


def _paths(name: str, model: ServedModel) -> PlainSchema:
    """Return the routes, each with its operations."""
    sample = sample_of(model)
    text = sample if isinstance(sample, str) else msgspec.json.encode(sample).decode()
    asked = {"examples": [sample]}
    inferred = {"inputs": [{"name": INPUT, "datatype": "BYTES", "shape": [1], "data": [text]}]}
    by_name = f"/v2/models/{name}"
    state = {"200": _of("ready, or alive", "State"), "503": _of("draining, or the engine has ended", "State")}
    return {
        "/predict": {
            "post": _operation(
                "predict",
                "Predictions of examples, in their order",
                {"200": _of("a prediction or an error for each example", "Predictions")} | _refusals(),
                requestBody=_body("Ask", asked),
            )
        },
        "/healthz": {"get": _operation("healthz", "Whether the server lives", state)},
        "/readyz": {"get": _operation("readyz", "Whether the server takes requests", state)},
        "/metrics": {
            "get": _operation(
                "metrics",
                "Figures in the text format of Prometheus",
                {
                    "200": {
                        "description": "figures",
                        "content": {"text/plain": {"schema": {"type": "string"}}},
                    }
                },
            )
        },
        "/": {"get": _operation("about", "The model in a few words", {"200": _of("the model", "About")})},
        "/v2": {"get": _operation("v2", "The server, as Open Inference Protocol", _ok("ServerMetadata"))},
        "/v2/health/live": {"get": _operation("v2_live", "Whether the server lives", state)},
        "/v2/health/ready": {"get": _operation("v2_ready", "Whether the server takes requests", state)},
        by_name: {"get": _operation("v2_model", "The model's inputs and outputs", _ok("ModelMetadata"))},
        f"{by_name}/ready": {"get": _operation("v2_model_ready", "Whether the model answers", state)},
        f"{by_name}/infer": {
            "post": _operation(
                "v2_infer",
                "Predictions as tensors, as Open Inference Protocol; a bad example fails the request",
                {"200": _of("tensors", "Inferred")} | _refusals(partly=()),
                requestBody=_body("Inference", inferred),
            )
        },
    }


def _operation(
    identifier: str, summary: str, responses: Mapping[str, object], **fields: object
) -> PlainSchema:
    """Return an operation with its answers, and the schema of refusals that are not listed."""
    unknown = _of("another refusal", "Refused")
    return {
        "operationId": identifier,
        "summary": summary,
        **fields,
        "responses": {**responses, "default": unknown},
    }


def _of(description: str, schema: str) -> PlainSchema:
    return {"description": description, "content": {JSON: {"schema": _reference(schema)}}}


def _ok(schema: str) -> PlainSchema:
    return {"200": _of("the description", schema)}


def _refusals(partly: tuple[int, ...] = PARTLY) -> PlainSchema:
    return {
        str(status): _of(text, "PredictionsOrRefused" if status in partly else "Refused")
        for status, text in STATUSES.items()
    }


def _body(schema: str, example: object) -> PlainSchema:
    return {"required": True, "content": {JSON: {"schema": _reference(schema), "example": example}}}


def _reference(schema: str) -> PlainSchema:
    return {"$ref": REFERENCE.format(name=schema)}


def _schemas(model: ServedModel, limits: Limits) -> dict[str, PlainSchema]:
    """Return the schemas of bodies and answers, those of examples and predictions as the model has them."""
    types = [Ask, Inference, Inferred, ModelMetadata, ServerMetadata]
    _, schemas = msgspec.json.schema_components(types, ref_template=REFERENCE)
    body: PlainSchema = schemas["Ask"]["properties"]
    count = {"minItems": 1, "maxItems": limits.examples}
    body["examples"] |= count | {"items": _reference("Example")}
    if model.notes["task"] != "nodes":
        body["nodes"] |= {"const": False}
    inference: PlainSchema = schemas["Inference"]["properties"]
    inference["inputs"] |= {"minItems": 1, "maxItems": 1}
    names = [tensor.name for tensor in metadata("", model).outputs]
    schemas["Wanted"]["properties"]["name"] |= {"enum": names}
    tensor: PlainSchema = schemas["Input"]["properties"]
    tensor["name"] |= {"const": INPUT}
    tensor["datatype"] |= {"const": "BYTES"}
    records = FORMATS[_format(model)].kind == "records"
    tensor["data"] |= count | {"items": {"type": "string"} | ({"contentMediaType": JSON} if records else {})}
    words = {"type": "string"}
    return schemas | {
        **_example(model),
        **_prediction(model),
        "Predictions": _object({"predictions": _list(_reference("Prediction"))}),
        "PredictionsOrRefused": {"anyOf": [_reference("Predictions"), _reference("Refused")]},
        "Refused": _object({"error": words | {"description": "where: expected X, found Y; how to fix"}}),
        "State": _object({"status": {"enum": ["ready", "alive", "draining", "ended"]}}),
        "About": {"type": "object", "required": ["format", "model", "example"]},
    }


def _object(properties: Mapping[str, PlainSchema], **optional: PlainSchema) -> PlainSchema:
    required = {"type": "object", "required": [*properties], "properties": {**properties, **optional}}
    return required | {"additionalProperties": False}


def _list(items: PlainSchema) -> PlainSchema:
    return {"type": "array", "items": items}


def _example(model: ServedModel) -> dict[str, PlainSchema]:
    """Return the schemas of examples: records, any values of JSON, or texts or the words of sentences."""
    if model.schema is not None:
        unlike = {"description": "anything else: what training had not is read as missing, with a warning"}
        return {
            "Record": json_schema(model.schema.root),
            "Example": {"anyOf": [_reference("Record"), unlike]},
        }
    name = _format(model)
    format_ = FORMATS[name]
    if format_.kind == "records":  # of a script, whose functions know what they read
        return {"Example": {"description": "a value of JSON that the program reads"}}
    text = {"type": "string", "description": f"in the format {name}", "examples": [format_.sample]}
    words = _list({"type": "string"}) | {"minItems": 1, "maxItems": MOST_WORDS}
    return {"Example": {"anyOf": [text, words | {"description": "the words of a sentence"}]}}


def _prediction(model: ServedModel) -> dict[str, PlainSchema]:
    """Return the schemas of the answer for an example: what the model tells of it, or an error.

    Each object has a name, by which tools that make clients call their classes.
    """
    schemas: dict[str, PlainSchema] = {"Prediction": {"anyOf": [_reference("Answer"), _reference("Failed")]}}
    schemas["Failed"] = _object(
        {"error": {"type": "string", "description": "why it was refused, alone"}}, name=NAME
    )
    classes, around = model.notes.get("classes"), {"name": NAME, "warning": WARNING}
    if classes is None:
        schemas["Answer"] = _object({"result": of_type(model.programs[0].model.result)}, **around)
    elif not classes:
        schemas["Answer"] = _object({"number": {"type": ["number", "null"]}}, **around)
    else:
        share = {"type": ["number", "null"], "description": "null where it is not finite"}
        schemas["Probabilities"] = _object({spelled(label): share for label in classes})
        flags = all(isinstance(label, bool) for label in classes)
        schemas["Label"] = {"type": "boolean"} if flags else {"enum": list(classes)}
        label = _reference("Label")
        if model.notes["task"] == "nodes":
            node: dict[str, PlainSchema] = {
                "parent": {"type": "integer", "description": "the place of the parent in this list, or -1"},
                "word": {"type": ["string", "null"]},
                "label": label,
                "probability": share,
            }
            schemas["Node"] = _object(node)
            around["nodes"] = _list(_reference("Node")) | {"description": "children before parents"}
        answer = {"label": label, "probabilities": _reference("Probabilities")}
        schemas["Answer"] = _object(answer, **around)
    return schemas


def of_type(type_: object) -> PlainSchema:
    """Return the schema of the values of a type, as lists and objects of JSON; anything of an unknown one.

    >>> of_type(TensorType((2,)))["minItems"], of_type(TensorType((), "int32")), of_type(None)
    (2, {'type': 'integer'}, {})
    """
    match type_:
        case TensorType(shape=()):
            kind = KINDS[type_.dtype]
            return {"type": [kind, "null"] if type_.is_float else kind}
        case TensorType():
            extent, *inner = type_.shape
            items = of_type(TensorType(tuple(inner), type_.dtype))
            return _list(items) | {"minItems": extent, "maxItems": extent}
        case NestType():
            return _object({key: of_type(item) for key, item in zip(type_.keys, type_.items, strict=True)})
        case TupleType():
            schemas = [of_type(item) for item in type_.items]
            return {
                "type": "array",
                "prefixItems": schemas,
                "minItems": len(schemas),
                "maxItems": len(schemas),
            }
        case SequenceType() | BroadcastType():
            return _list(of_type(type_.element))
    return {}
