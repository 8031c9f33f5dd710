"""Contents: digests of examples and settings, by which ranks and resumed trainings compare what they have.

A digest covers what an example holds: numbers, texts, arrays, trees, lists, dicts, sets, prepared traces,
and the attributes of objects, however deep and also where parts are shared or contain themselves. Where an
object hides what it holds, as those of extension modules may, its class is all that is covered.
"""

import datetime as dt
import decimal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from hashlib import blake2b
from itertools import chain
from pathlib import PurePath
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from foldbatch.program.traced import Prepared
from foldbatch.trees import Tree, TreeNode
from foldbatch.trees.records import Records

Digests = NDArray[np.uint64]
Known = dict[int, tuple[object, bytes]]  # by id: the object, which must live as long, and its digest

PLAIN: Final = frozenset((type(None), bool, int, float, complex, str, bytes, range, type(...)))
WRITTEN: Final = (dt.date, dt.time, dt.timedelta, decimal.Decimal, PurePath)
NAMED: Final = (type, FunctionType, MethodType, ModuleType)
WITHIN: Final = b"^"  # stands for an object within itself
MANY: Final = 1 << 20  # objects whose digests are known at a time
ROWS: Final = 4096  # examples in columns that are made objects at a time


def digests(examples: Sequence[Any]) -> Digests:
    """Return a digest of each example, ``[n] uint64``.

    Examples that are made when they are asked for, by a sequence of the user's own, are not asked for: that
    may take long, or draw random numbers. Of these the class of the sequence is covered.

    >>> one, other, last = digests([(Tree.leaf("NN", "film"), [1]), (Tree.leaf("NN", "film"), [1]), "film"])
    >>> bool(one == other), bool(one == last)
    (True, False)
    """
    if isinstance(examples, Records):
        starts = range(0, len(examples), ROWS)
        parts: Iterable[Sequence[Any]] = (examples[start : start + ROWS].objects() for start in starts)
    elif isinstance(examples, list | tuple | np.ndarray):
        parts = (examples,)
    else:
        parts = ([type(examples)] * len(examples),)
    made = []
    for part in parts:
        known: Known = {}
        for example in part:
            made.append(digest(example, known))
            if len(known) > MANY:
                known.clear()
    return np.frombuffer(b"".join(made), "<u8").astype(np.uint64)


def digest(value: Any, known: Known | None = None) -> bytes:
    """Return a digest of a value, 8 bytes; `known` has those of objects met before, and takes more.

    >>> digest([1, [2]]) == digest([1, [2]]), digest([1, [2]]) == digest([1, (2,)]), digest(1) == digest(1.0)
    (True, False, False)
    """
    known = {} if known is None else known
    frames: list[tuple[Any, Any, Iterator[Any]]] = [(None, blake2b(digest_size=8), iter((value,)))]
    while True:
        whole, hashed, parts = frames[-1]
        for part in parts:
            text = _text(part)
            if text is None and (found := known.get(id(part))):
                text = found[1]
            if text is None:
                head, inner = _parts(part, known)
                known[id(part)] = (part, WITHIN)
                frames.append((part, blake2b(head, digest_size=8), iter(inner)))
                break
            hashed.update(text)
        else:
            frames.pop()
            if not frames:
                return bytes(hashed.digest())
            text = b"#" + hashed.digest()
            known[id(whole)] = (whole, text)
            frames[-1][1].update(text)


def _text(value: Any) -> bytes | None:
    """Return a text of what is plain, and of lists, tuples and dicts of nothing else; quickly, in C."""
    kind = type(value)
    if (
        kind not in PLAIN
        and not ((kind is list or kind is tuple) and PLAIN.issuperset(map(type, value)))
        and not (kind is dict and PLAIN.issuperset(map(type, chain(value, value.values()))))
    ):
        return None
    try:
        return repr(value).encode() + b"\0"
    except ValueError:  # an int of more digits than Python writes
        return None


def _parts(value: Any, known: Known) -> tuple[bytes, Iterable[Any]]:
    kind = type(value)
    if kind is list or kind is tuple:  # most of all
        return b"%s %d" % (kind.__name__.encode(), len(value)), value
    if kind is dict:
        return b"dict %d" % len(value), chain.from_iterable(value.items())
    name = f"{kind.__module__}.{kind.__qualname__}"
    match value:
        case int():
            return f"{name} {int(value):x}".encode(), ()
        case Tree():
            return name.encode() + value.parents.tobytes(), (value.labels, value.tokens)
        case TreeNode():
            return f"{name} {value.index}".encode(), (value.tree,)
        case Prepared():
            trace = value.trace
            numbers = (trace.packed,) if trace.form else (trace.calls, trace.elements, trace.levels)
            feeds = trace.loose if trace.form else trace.feeds
            return name.encode(), (*numbers, feeds, trace.labels, trace.result)
        case np.ndarray() | np.generic() if not value.dtype.hasobject:
            array = np.ascontiguousarray(value)
            return f"{name} {array.dtype.str} {np.shape(value)}".encode() + array.tobytes(), ()
        case np.ndarray():
            return f"{name} {value.shape}".encode(), value.ravel().tolist()
        case str() | bytes() | float() | complex():  # of a class of its own
            arguments: tuple[Any, ...] = value.__getnewargs__()  # type: ignore[union-attr] # all have it
            return name.encode(), arguments
        case Mapping():
            return f"{name} {len(value)}".encode(), chain.from_iterable(value.items())
        case AbstractSet():
            return name.encode(), sorted(digest(part, known) for part in value)
        case Sequence():
            return f"{name} {len(value)}".encode(), value
        case type() | FunctionType() | MethodType() | ModuleType():
            return f"{name} {getattr(value, '__module__', '')} {_name(value)}".encode(), ()
    if isinstance(value, WRITTEN):
        return f"{name} {value}".encode(), ()
    if hasattr(kind, "__array__"):  # of another library, such as a tensor
        return name.encode(), (np.asarray(value),)
    try:
        return name.encode(), (bytes(memoryview(value)),)  # type: ignore[arg-type] # which may be none
    except TypeError:
        state = object.__getstate__(value)
    return name.encode(), (state,)


def _name(value: Any) -> str:
    return str(getattr(value, "__qualname__", getattr(value, "__name__", "")))


Facts = dict[str, str]
SHOWN = 60  # characters of a value that is shown
DIGEST = "digest "  # begins the text of what is too long to be shown


def text_of(value: Any) -> str:
    """Return a value as text, or its digest where that is long.

    >>> text_of(np.float64(0.5)), text_of({"words": 0.1}), text_of("a" * 100)[:7]
    ('0.5', "{'words': 0.1}", 'digest ')
    """
    if isinstance(value, np.generic):
        value = value.item()
    if is_plain(value) and len(text := repr(value)) <= SHOWN:
        return text
    return DIGEST + digest(value).hex()


def is_plain(value: Any) -> bool:
    """Return whether a value is a number, a text, None, or a list, tuple or dict of these."""
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    if isinstance(value, Mapping):
        return all(map(is_plain, (*value, *value.values())))
    return type(value) in PLAIN or isinstance(value, np.generic)


def settings(owner: object) -> Facts:
    """Return the settings of an optimizer or a callback: its attributes of plain data that are not private.

    >>> import foldbatch as fb
    >>> settings(fb.SGD(0.1, momentum=0.9))["momentum"]
    '0.9'
    """
    public = {name: value for name, value in vars(owner).items() if not name.startswith("_")}
    return {name: text_of(value) for name, value in public.items() if is_plain(value)}
