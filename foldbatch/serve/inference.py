"""The Open Inference Protocol (version 2, HTTP with JSON), as far as it fits examples of any shape.

A batch of examples is one input of texts: datatype ``BYTES``, shape ``[N]``, each text as a file of the
model's format would hold it, a record as JSON. Labels, probabilities and numbers come back as tensors. The
protocol knows tensors of one shape only, and no answer that has failed for one example alone: requests for
answers of all nodes, and requests with an example that cannot be read, are refused, and ``/predict`` is
named, which answers them.

Source: https://github.com/kserve/open-inference-protocol, specification/protocol/inference_rest.md.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from foldbatch.errors import ReadError
from foldbatch.program.predicting import spelled
from foldbatch.recipes.configuration import Configuration
from foldbatch.serve.predict import (
    Content,
    Form,
    Headers,
    Read,
    content_type,
    read_value,
    refuse_media,
    refuse_number,
)
from foldbatch.serve.service import Limits, RefusedError, ServedModel
from foldbatch.trees.formats import FORMATS

INPUT = "examples"  # the name of the one input
PREDICT = "or POST the examples to /predict"
BINARY = b"inference-header-content-length"  # the header of the extension for binary tensors
TEXTS = Meta(description="texts as in files of the model's format; a record as JSON")


class Parameters(Struct, forbid_unknown_fields=True):
    """The parameters of a request that have a meaning here."""

    deadline: Annotated[float, Meta(gt=0, description="seconds that the request may take")] | UnsetType = (
        UNSET
    )
    binary_data_output: Annotated[bool, Meta(description="of no effect: answers are JSON")] | UnsetType = (
        UNSET
    )


Extent = Annotated[float, Meta(ge=0, multiple_of=1)]  # 2.0 is a whole number in JSON Schema, too


class Input(Struct, forbid_unknown_fields=True):
    """An input tensor."""

    name: str
    shape: Annotated[list[Extent], Meta(min_length=1, max_length=2, description="[N], or [N, 1]")]
    datatype: Annotated[str, Meta(description="BYTES")]
    data: Annotated[list[Any], TEXTS]
    parameters: dict[str, Any] | UnsetType = UNSET


class Wanted(Struct, forbid_unknown_fields=True):
    """An output tensor that a request asks for."""

    name: str
    parameters: dict[str, Any] | UnsetType = UNSET


class Inference(Struct, forbid_unknown_fields=True):
    """A request for inference."""

    inputs: list[Input]
    id: str | UnsetType = UNSET
    parameters: Parameters | UnsetType = UNSET
    outputs: list[Wanted] | UnsetType = UNSET

    nodes = False  # their answers have as many rows as an example has nodes, which no tensor has

    @property
    def deadline(self) -> float | None:
        """Seconds that the request may take; None for the server's limit."""
        deadline = self.parameters.deadline if self.parameters is not UNSET else UNSET
        return None if deadline is UNSET else deadline


class Tensor(Struct, omit_defaults=True):
    """The description of an input or of an output; -1 is an extent that a request decides."""

    name: str
    datatype: Literal["BYTES", "FP64"]
    shape: list[int]


class Output(Struct):
    """An output tensor, its numbers row by row."""

    name: str
    datatype: Literal["BYTES", "FP64"]
    shape: list[int]
    data: list[str | float | None]
    parameters: dict[str, str] | UnsetType = UNSET


class Inferred(Struct):
    """An answer to a request for inference."""

    model_name: str
    outputs: list[Output]
    id: str | UnsetType = UNSET
    parameters: dict[str, str] | UnsetType = UNSET


class ModelMetadata(Struct):
    """The description of the model."""

    name: str
    platform: str
    inputs: list[Tensor]
    outputs: list[Tensor]
    versions: list[str] = []


class ServerMetadata(Struct):
    """The description of the server."""

    name: str
    version: str
    extensions: list[str] = []


def metadata(name: str, model: ServedModel) -> ModelMetadata:
    """Return the description of a model: one input of texts, and the outputs that it has."""
    return ModelMetadata(
        name, "foldbatch", [Tensor(INPUT, "BYTES", [-1])], outputs_of(model.notes.get("classes"))
    )


def outputs_of(classes: Sequence[object] | None) -> list[Tensor]:
    """Return the outputs of a model with some classes, with none, which tells numbers, or of a script (None).

    >>> [tensor.name for tensor in outputs_of(["bad", "good"])]
    ['label', 'probabilities']
    """
    if classes:
        return [Tensor("label", "BYTES", [-1]), Tensor("probabilities", "FP64", [-1, len(classes)])]
    return [Tensor("result", "BYTES", [-1])] if classes is None else [Tensor("number", "FP64", [-1])]


def form(name: str, model: ServedModel) -> Form[Inference]:
    """Return how requests and answers for inference by a model are written."""
    names = [tensor.name for tensor in outputs_of(model.notes.get("classes"))]

    def read(
        body: bytes, headers: Headers, configuration: Configuration, limits: Limits
    ) -> tuple[list[Read], Inference]:
        """Return the examples of a body, and the request; refuse outputs that the model has not."""
        inference = read_inference(body, headers)
        for wanted in inference.outputs or ():
            if wanted.name not in names:
                raise ReadError(
                    "outputs",
                    f"some of {', '.join(names)}",
                    repr(wanted.name),
                    f"leave outputs out, {PREDICT}",
                )
        return read_examples(inference, configuration, limits), inference

    def write(status: int, contents: list[Content], inference: Inference) -> tuple[int, Content]:
        """Return status and tensors of predictions; the first error where one of them has failed."""
        for content in contents:
            if "error" in content:
                fix = f"send it without, {PREDICT}, which answers the others"
                return max(status, 422), {"error": f"{content['error']}; {fix}"}
        return 200, msgspec.to_builtins(_inferred(name, contents, inference))

    return Form(read, write)


def read_inference(body: bytes, headers: Headers) -> Inference:
    """Return the request that a body holds.

    Raises:
        RefusedError: where it is no JSON, or has binary tensors.
        ReadError: where it is no request for inference, or one that asks for something else than there is.
    """
    if BINARY in headers:
        fix = f"send data as JSON (binary_data=False), {PREDICT}"
        raise RefusedError(415, "body", "tensors as JSON", "binary ones", fix)
    refuse_media(content_type(headers))
    try:
        return msgspec.json.decode(body, type=Inference)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        fix = (
            f'send {{"inputs": [{{"name": "{INPUT}", "datatype": "BYTES", "shape": [1], "data": ["..."]}}]}}'
        )
        raise ReadError("body", "a request for inference", str(error), f"{fix}, {PREDICT}") from None
    except RecursionError:
        raise ReadError(
            "body", "texts as data", "deeper nesting than the parser can follow", PREDICT
        ) from None


def read_examples(inference: Inference, configuration: Configuration, limits: Limits) -> list[Read]:
    """Return the examples of a request for inference.

    Raises:
        ReadError: where it has not one input of texts.
        RefusedError: where the shape is not that of the texts.
    """
    if len(inference.inputs) != 1 or inference.inputs[0].name != INPUT:
        names = ", ".join(repr(tensor.name) for tensor in inference.inputs[:9]) or "none"
        raise ReadError("inputs", f"one input, {INPUT!r}", names, f"send all examples in it, {PREDICT}")
    (tensor,) = inference.inputs
    if tensor.datatype != "BYTES":
        raise ReadError("inputs", "the datatype BYTES", tensor.datatype[:40], f"send texts, {PREDICT}")
    count = len(tensor.data)
    if not count or tensor.shape not in ([count], [count, 1]):
        actual, fix = f"{[*map(int, tensor.shape)]} for {count}", f"send a text for each example, {PREDICT}"
        raise RefusedError(422, "inputs", "the shape [N] for N texts, 1 or more", actual, fix)
    refuse_number(count, limits)
    records = FORMATS[configuration.data.format].kind == "records"
    read = _read_record if records else _read_text
    return [read(text, number, configuration, limits) for number, text in enumerate(tensor.data)]


def _read_text(text: object, number: int, configuration: Configuration, limits: Limits) -> Read:
    if isinstance(text, str):
        return read_value(text, number, configuration, limits)
    return ReadError(f"example {number}", "a text", type(text).__name__, f"send texts as data, {PREDICT}")


def _read_record(text: object, number: int, configuration: Configuration, limits: Limits) -> Read:
    """Return the record that a text holds as JSON."""
    where, fix = f"example {number}", f"send json.dumps(record) as data, {PREDICT}"
    if not isinstance(text, str):
        return ReadError(where, "a record as a text of JSON", type(text).__name__, fix)
    try:
        record = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        return ReadError(where, "a record as a text of JSON", str(error), fix)
    return read_value(record, number, configuration, limits)


def _inferred(name: str, contents: list[Content], inference: Inference) -> Inferred:
    """Return the predictions of a request as tensors."""
    count, first = len(contents), contents[0]
    if "probabilities" in first:
        classes = list(first["probabilities"])
        flat = [share for content in contents for share in content["probabilities"].values()]
        named = {"classes": msgspec.json.encode(classes).decode()}
        outputs = [
            Output("label", "BYTES", [count], [spelled(content["label"]) for content in contents]),
            Output("probabilities", "FP64", [count, len(classes)], flat, named),
        ]
    elif "number" in first:
        outputs = [Output("number", "FP64", [count], [content["number"] for content in contents])]
    else:
        texts = [msgspec.json.encode(content["result"]).decode() for content in contents]
        outputs = [Output("result", "BYTES", [count], list(texts))]
    if inference.outputs:
        names = [wanted.name for wanted in inference.outputs]
        outputs = [output for output in outputs if output.name in names]
    warnings = dict.fromkeys(content["warning"] for content in contents if "warning" in content)
    parameters = {"warning": "; ".join(warnings)} if warnings else UNSET
    return Inferred(name, outputs, inference.id, parameters)
