"""JSON and JSON lines from files, and trees as JSON lines."""

import os
import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import msgspec

from foldbatch.errors import ExampleError, FoldbatchError, ReadError
from foldbatch.trees.text import TextPiece, read_pieces
from foldbatch.trees.tree import Tree
from foldbatch.types import describe_value

Source = str | os.PathLike[str] | Iterable[str]
_BYTE = re.compile(r" \(byte (\d+)\)$")
_FIELDS = ("parents", "labels", "tokens")


Json: TypeAlias = Any  # a value of JSON


def read_json(path_or_lines: Source) -> Json:
    r"""Return the one value that a JSON file (plain or ``.gz``) or an iterable of lines holds.

    The whole file is held in memory; for many values, write one a line and use `read_jsonlines`.

    Raises:
        ReadError: with ``file:line:column``, when the text is no JSON, or is nested too deeply.

    >>> read_json(['{"name": "ada",\n', ' "born": 1815}'])
    {'name': 'ada', 'born': 1815}
    """
    pieces = list(read_pieces(path_or_lines))
    first = pieces[0]
    return _decode(TextPiece("".join(piece.text for piece in pieces), first.name, first.line), "value")


def read_jsonlines(path_or_lines: Source) -> Iterator[Json]:
    """Yield the values of a file of JSON lines (plain or ``.gz``), or of an iterable of lines.

    Blank lines are skipped. One line is held in memory at a time.

    Raises:
        ReadError: as `read_json`, while iterating.

    >>> list(read_jsonlines(['{"a": 1}', '', '[2, null]']))
    [{'a': 1}, [2, None]]
    """
    for _, value in placed_jsonlines(path_or_lines):
        yield value


def placed_jsonlines(path_or_lines: Source) -> Iterator[tuple[str, object]]:
    """Yield each value of `read_jsonlines` with its ``file:line``.

    >>> list(placed_jsonlines(['{"a": 1}', '', '2']))
    [('lines:1', {'a': 1}), ('lines:3', 2)]
    """
    for line in _lines(path_or_lines):
        yield f"{line.name}:{line.line}", _decode(line, "value on each line")


def write_json(tree: Tree) -> str:
    """Return a tree as one line of JSON, from which `read_json_trees` makes an equal tree.

    The line holds the arrays of `Tree`: ``{"parents": [...], "labels": [...], "tokens": [...]}``.

    Raises:
        ExampleError: when a label or a token is no text that UTF-8 can hold.

    >>> write_json(Tree.from_nested(("S", "yes")))
    '{"parents":[-1],"labels":["S"],"tokens":["yes"]}'
    """
    if not isinstance(tree, Tree):
        raise ExampleError("write_json", "a tree", describe_value(tree), "give one Tree at a time")
    plain = {"parents": tree.parents.tolist(), "labels": tree.labels, "tokens": tree.tokens}
    try:
        return msgspec.json.encode(plain).decode()
    except UnicodeEncodeError as error:
        fix = "replace such characters, as str.encode(errors='replace') does"
        expected = "text that UTF-8 can hold"
        raise ExampleError("write_json", expected, describe_value(error.object), fix) from None


def read_json_trees(path_or_lines: Source) -> Iterator[Tree]:
    """Yield the trees of JSON lines that `write_json` has written.

    Raises:
        ReadError: with ``file:line:column``, as `read_jsonlines`, and when a line holds no tree.

    >>> next(read_json_trees(['{"parents": [1, -1], "labels": [0, "S"], "tokens": ["yes", null]}'])).words()
    ('yes',)
    """
    for line in _lines(path_or_lines):
        value = _decode(line, "tree on each line")
        fix = "write trees with fb.trees.write_json; records of other fields are of format jsonlines"
        expected = f"an object with the fields {', '.join(_FIELDS)}"
        if not isinstance(value, dict) or set(value) != set(_FIELDS):
            raise ReadError(line.where(0), expected, describe_value(value), fix)
        for name, items in value.items():
            if not isinstance(items, list):
                raise ReadError(line.where(0), f"{name} as a list", describe_value(items), fix)
        if not all(type(parent) is int for parent in value["parents"]):
            raise ReadError(line.where(0), "integers as parents", "something else", fix)
        try:
            yield Tree(value["parents"], value["labels"], value["tokens"])
        except FoldbatchError as error:
            where = f"{line.where(0)} {error.where}"
            raise ReadError(where, error.expected, error.found, error.fix) from None


def _lines(path_or_lines: Source) -> Iterator[TextPiece]:
    for piece in read_pieces(path_or_lines):
        yield from (TextPiece(text, piece.name, n) for n, text in piece.lines() if text.strip())


def _decode(piece: TextPiece, kind: str) -> object:
    """Return the JSON value of a piece of text; errors name the place of the fault in it."""
    fix = "repair it; JSON quotes names and text with double quotes"
    try:
        data = piece.text.encode()
        return msgspec.json.decode(data)
    except UnicodeEncodeError as error:
        actual = "half of a surrogate pair"
        raise ReadError(piece.where(error.start), "text that UTF-8 can hold", actual, "replace it") from None
    except RecursionError:
        actual = "deeper nesting than the parser can follow"
        fix = "write deep trees with fb.trees.write_json"
        raise ReadError(piece.where(0), f"a JSON {kind}", actual, fix) from None
    except (ValueError, msgspec.MsgspecError) as error:  # which is a ValueError since msgspec 0.21
        message, at = str(error), 0
        if place := _BYTE.search(message):
            message = message[: place.start()].removeprefix("JSON is malformed: ")
            byte = int(place[1]) - message.startswith("trailing characters")  # whose byte is one too far
            at = len(data[:byte].decode(errors="ignore"))
            message = f"{piece.text[at : at + 1]!r} ({message})"
        elif "truncated" in message:
            at = len(piece.text.rstrip())
            message = "its end too early" if at else "nothing"
        raise ReadError(piece.where(at), f"a JSON {kind}", message, fix) from None
