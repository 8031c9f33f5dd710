"""Bodies of requests: from bytes to the examples that a model reads; a fault in one is told of it alone."""

from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO
from typing import Annotated, Any

import msgspec

from foldbatch.errors import ExampleError, ExampleTypeError, FoldbatchError, ReadError
from foldbatch.recipes.configuration import Configuration, check_arity
from foldbatch.serve.service import Limits
from foldbatch.trees.formats import FORMATS, structures_of
from foldbatch.trees.tree import TreeNode
from foldbatch.types import describe_value

JSON, LINES, TEXT = "application/json", "application/x-ndjson", "text/plain"


class TooLargeError(ReadError):
    """A request is larger than the server takes."""


class MediaTypeError(ReadError):
    """The body of a request is of a kind that the server does not read."""


class Ask(msgspec.Struct, forbid_unknown_fields=True):
    """A body of JSON."""

    examples: list[Any]
    nodes: bool = False
    deadline: Annotated[float, msgspec.Meta(gt=0)] | None = None


@dataclass(frozen=True, slots=True)
class ReadExample:
    """An example as the model reads it."""

    name: str | None  # that its text gives it, such as that of a function; None where there is none
    structure: Any  # a tree, a list of words, or a record
    size: int  # its nodes, words or values


Read = ReadExample | FoldbatchError  # an example, or why it is refused


def read_body(body: bytes, kind: str, configuration: Configuration, limits: Limits) -> tuple[list[Read], Ask]:
    """Return the examples of a body, and what is asked of them.

    >>> sst = msgspec.convert({"data": {"format": "sst"}, "model": {"name": "tree_lstm"}}, Configuration)
    >>> read, _ = read_body(b'{"examples": ["(2 (2 a) (2 film))", "(2 (2 a"]}', JSON, sst, Limits())
    >>> read[0].size, read[1].where
    (3, 'example 1:1:8')
    """
    kind = kind.partition(";")[0].strip().lower() or JSON
    if kind == JSON:
        ask = _ask(body)
        read = [_one(value, number, configuration, limits) for number, value in _few(ask.examples, limits)]
    elif kind == LINES:
        ask, lines = Ask([]), [line for line in body.split(b"\n") if line.strip()]
        read = [_line(line, number, configuration, limits) for number, line in _few(lines, limits)]
    elif kind == TEXT:
        ask, read = Ask([]), []
        for piece in _pieces(_text(body), configuration.data.format):
            most = limits.examples - len(read) + 1  # one too many is enough to know
            read += _structures(piece, len(read), configuration, limits, most)
            _few(read, limits)
    else:
        fix = f"send Content-Type: {JSON}, {LINES} or {TEXT}"
        raise MediaTypeError("body", "JSON, lines of JSON or text", kind, fix)
    if not read:
        raise ReadError("body", "an example or more", "none", 'send {"examples": [...]}')
    return read, ask


def numbered(error: FoldbatchError, number: int) -> FoldbatchError:
    """Return an error of an example that ran alone, with the example's number in its request.

    >>> print(numbered(ExampleError("model at example 0 ['a']", "a number", "None"), 3))
    model at example 3 ['a']: expected a number, found None
    """
    if "example 0" in error.where:
        where = error.where.replace("example 0", f"example {number}", 1)
    else:
        where = f"{error.where} at example {number}"
    return ExampleError(where, error.expected, error.found, error.fix)


def _ask(body: bytes) -> Ask:
    fix = 'send {"examples": [...], "nodes": false, "deadline": 1.5}'
    try:
        return msgspec.json.decode(body, type=Ask)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ReadError("body", "a JSON object with examples", str(error), fix) from None
    except RecursionError:
        raise ReadError("body", "a JSON object", "deeper nesting than the parser can follow", fix) from None


def _text(body: bytes) -> str:
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        found = f"the byte 0x{error.object[error.start]:02x} ({error.reason})"
        raise ReadError("body", "text in UTF-8", found, "send it as UTF-8") from None


def _few(examples: list[Any], limits: Limits) -> Iterator[tuple[int, Any]]:
    if len(examples) > limits.examples:
        fix = "send them in several requests"
        raise TooLargeError("body", f"{limits.examples:,} examples or fewer", "more", fix)
    return enumerate(examples)


def _pieces(text: str, format_: str) -> list[str]:
    """Return the pieces of a text, of which a fault in one does not touch the others."""
    separator = FORMATS[format_].separator
    pieces = text.replace("\r\n", "\n").split(separator) if separator else [text]
    return [piece for piece in pieces if piece.strip() or not separator]


def _line(line: bytes, number: int, configuration: Configuration, limits: Limits) -> Read:
    where = f"example {number}"
    try:
        value = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return ReadError(where, "a JSON value on each line", str(error), "repair the line")
    except RecursionError:
        found = "deeper nesting than the parser can follow"
        return ReadError(where, "a JSON value on each line", found, "send it as text")
    return _one(value, number, configuration, limits)


def _one(value: Any, number: int, configuration: Configuration, limits: Limits) -> Read:
    where = f"example {number}"
    if FORMATS[configuration.data.format].kind == "records":
        return _bounded(None, value, where, limits)
    if isinstance(value, str):
        read = _structures(value, number, configuration, limits, 2)
        if len(read) == 1:
            return read[0]
        fix = "send each as an example of its own"
        return ReadError(where, "one example", "several in one text" if read else "none", fix)
    if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
        return _bounded(None, value, where, limits)
    fix = f"send what a file of format {configuration.data.format} holds"
    return ExampleTypeError(where, "a text or a list of words", describe_value(value), fix)


def _structures(
    text: str, number: int, configuration: Configuration, limits: Limits, most: int
) -> list[Read]:
    """Return the examples of a text, so many at most; what cannot be read ends them."""
    read: list[Read] = []
    structures = structures_of(configuration.data.format)
    try:
        for name, structure in structures(StringIO(text), f"example {number}"):
            where = f"example {number + len(read)}"
            check_arity(configuration, structure, where)
            read.append(_bounded(name, structure, where, limits))
            if len(read) == most:
                break
    except FoldbatchError as error:
        place = f"example {number + len(read)}"
        where = error.where if error.where.startswith("example ") else f"{place}, {error.where}"
        read.append(ReadError(where, error.expected, error.found, error.fix))
    return read


def _bounded(name: str | None, structure: Any, where: str, limits: Limits) -> Read:
    if isinstance(structure, TreeNode):
        size = structure.size
        depth = structure.height if size > limits.depth else 0  # a tree has more nodes than levels
    else:
        size, depth = _extent(structure)
    if size > limits.nodes:
        fix = "cut it, or start the server with a larger --nodes"
        return TooLargeError(where, f"{limits.nodes:,} nodes or fewer", f"{size:,}", fix)
    if depth > limits.depth:
        fix = "start the server with a larger --depth"
        return TooLargeError(where, f"{limits.depth:,} levels or fewer", f"{depth:,}", fix)
    return ReadExample(name, structure, max(size, 1))


def _extent(value: Any) -> tuple[int, int]:
    size, depth, level = 0, 0, [value]
    while level:
        below: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                below += each.values()
            elif isinstance(each, list):
                below += each
        size += len(below)
        depth += bool(below)
        level = below
    return size, depth
