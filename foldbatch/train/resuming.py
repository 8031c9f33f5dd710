"""Resuming: all that a training has to keep to go on as if it had not stopped, in a file.

A state is plain data: dicts with keys of str, lists, strings, numbers, bools, None, and arrays. JSON has no
arrays, and no numbers that are not finite, so such a value is written as a dict with one key.

What a training begins with is a `Record`, which its checkpoints keep: one that goes on has the same, and so
have all ranks. A model sees the numbers of words only, so two models that differ in the words of these are
the same to it. So what the examples are traced to is in the record, too: there the numbers stand.

A record has digests of examples and of what is long. One covers what an example holds:
numbers, texts, arrays, trees, lists, dicts, sets, prepared traces, and the attributes of objects, however
deep and also where parts are shared or contain themselves. Where an object hides what it holds, as those of
extension modules may, its class is all that is covered.
"""

from __future__ import annotations

import datetime as dt
import decimal
import hashlib
import math
import numbers
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain
from pathlib import Path, PurePath
from types import FrameType, FunctionType, MethodType, ModuleType
from typing import Annotated, Any, Final, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from foldbatch.engines.pending import Pending
from foldbatch.errors import FoldbatchError, ReadError, TrainingError, counted
from foldbatch.model import model
from foldbatch.params.parameters import Array
from foldbatch.program.program import Program
from foldbatch.program.traced import Prepared
from foldbatch.scheduler.trace import pack
from foldbatch.system import files
from foldbatch.train.checks import NUMBERED, noting
from foldbatch.train.streams import Stream
from foldbatch.trees import Tree, TreeNode
from foldbatch.trees.given import Rows
from foldbatch.types import describe_value

DEFAULTS: Final = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}


class Interrupts:
    """Notes a signal, within a ``with`` statement, and raises its exception where `look` is called.

    The second signal is not held back. A signal for which the user has set a handler is left to it; so are
    all signals outside of the main thread, where Python runs no handlers.

    >>> import os
    >>> try:
    ...     with Interrupts() as interrupts:
    ...         os.kill(os.getpid(), signal.SIGINT)
    ...         print("this is done first")
    ...         interrupts.look()
    ... except KeyboardInterrupt:
    ...     print("interrupted", interrupts.raised)
    this is done first
    interrupted True
    """

    def __init__(self) -> None:
        self.raised = False
        self._noted: int | None = None
        self._former: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number, default in DEFAULTS.items():
                if signal.getsignal(number) == default:
                    self._former[number] = default
                    signal.signal(number, self._note)
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._let_go()
        if error is None:
            self.look()

    @property
    def noted(self) -> int:
        """The signal that came, or 0."""
        return self._noted or 0

    def look(self, agreed: int | None = None) -> None:
        """Raise the exception of a signal that came."""
        number = self.noted if agreed is None else agreed
        if not number:
            return
        self._noted, self.raised = None, True
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._noted = number
        self._let_go()

    def _let_go(self) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)
        self._former = {}


Digests = NDArray[np.uint64]
CachedDigests = dict[int, tuple[object, bytes]]  # by id: the object, which must live as long, and its digest

PLAIN: Final = frozenset((type(None), bool, int, float, complex, str, bytes, range, type(...)))
WRITTEN: Final = (dt.date, dt.time, dt.timedelta, decimal.Decimal, PurePath)
WITHIN: Final = b"^"  # stands for an object within itself
MAX_CACHED: Final = 1 << 20  # objects whose digests are known at a time
TRACED_TOGETHER: Final = 4096  # examples that are traced at a time
AGAIN: Final = 64  # examples that are traced twice, to see whether the same comes


def digests(examples: Sequence[object]) -> Digests:
    """Return a digest of each example, ``[n] uint64``.

    Examples that are made when they are asked for, by a sequence of the user's own, are not asked for: that
    may take long, or draw random numbers. Of these the class of the sequence is covered.

    >>> one, other, last = digests([(Tree.leaf("NN", "film"), [1]), (Tree.leaf("NN", "film"), [1]), "film"])
    >>> bool(one == other), bool(one == last)
    (True, False)
    """
    if not isinstance(examples, list | tuple | np.ndarray | Rows):
        examples = [type(examples)] * len(examples)
    cached: CachedDigests = {}
    texts = []
    for example in examples:
        texts.append(digest(example, cached))
        if len(cached) > MAX_CACHED:
            cached.clear()
    return np.frombuffer(b"".join(texts), "<u8").astype(np.uint64)


def first_rows(stream: Stream) -> tuple[list[object], bool]:
    """Return the first rows of a stream, and whether a second reading has the same; none where it has not."""
    rows = stream.head()
    repeatable = bool(np.array_equal(digests(rows), digests(stream.head())))
    return (rows if repeatable else []), repeatable


def digest(value: object, cached: CachedDigests | None = None) -> bytes:
    """Return a digest of a value, 8 bytes; `cached` has those of objects met before, and takes more.

    >>> digest([1, [2]]) == digest([1, [2]]), digest([1, [2]]) == digest([1, (2,)]), digest(1) == digest(1.0)
    (True, False, False)
    """
    cached = {} if cached is None else cached
    frames: list[tuple[object, Any, Iterator[object]]] = [(None, blake2b(digest_size=8), iter((value,)))]
    while True:
        container, hashed, parts = frames[-1]
        for part in parts:
            text = _text(part)
            if text is None and (entry := cached.get(id(part))):
                text = entry[1]
            if text is None:
                head, inner = _parts(part, cached)
                cached[id(part)] = (part, WITHIN)
                frames.append((part, blake2b(head, digest_size=8), iter(inner)))
                break
            hashed.update(text)
        else:
            frames.pop()
            if not frames:
                return bytes(hashed.digest())
            text = b"#" + hashed.digest()
            cached[id(container)] = (container, text)
            frames[-1][1].update(text)


def _text(value: Any) -> bytes | None:
    """Return the text of a plain value, or of a list, tuple or dict of plain values; None of other ones."""
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


def _parts(value: Any, cached: CachedDigests) -> tuple[bytes, Iterable[object]]:
    """Return the head of a container's digest, and the parts to digest after it."""
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
            return name.encode(), (pack(trace), trace.loose, trace.labels, trace.result)
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
            return name.encode(), sorted(digest(part, cached) for part in value)
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


def _name(value: object) -> str:
    return str(getattr(value, "__qualname__", getattr(value, "__name__", "")))


Facts = dict[str, str]
SHOWN_CHARACTERS = 60  # characters of a value that is shown
DIGEST = "digest "  # begins the text of what is too long to be shown


def text_of(value: object) -> str:
    """Return a value as text, or its digest where that is long.

    >>> text_of(np.float64(0.5)), text_of({"words": 0.1}), text_of("a" * 100)[:7]
    ('0.5', "{'words': 0.1}", 'digest ')
    """
    if isinstance(value, np.generic):
        value = value.item()
    if is_plain(value) and len(text := repr(value)) <= SHOWN_CHARACTERS:
        return text
    return DIGEST + digest(value).hex()


def is_plain(value: object) -> bool:
    """Return whether a value is a number, a text, None, or a list, tuple or dict of these."""
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    if isinstance(value, Mapping):
        return all(map(is_plain, (*value, *value.values())))
    return type(value) in PLAIN or isinstance(value, np.generic)


def settings(owner: object) -> Facts:
    """Return the settings of an optimizer or a callback: its attributes of plain data that are not private.

    >>> settings(fb.SGD(0.1, momentum=0.9))["momentum"]
    '0.9'
    """
    public = {name: value for name, value in vars(owner).items() if not name.startswith("_")}
    return {name: text_of(value) for name, value in public.items() if is_plain(value)}


KIND = "checkpoint"
ARRAY, FLOAT = "$array", "$float"  # the keys of dicts that stand for what JSON does not have
ANEW = "delete it, and resume from another one or start anew"


def write_state(path: str | os.PathLike[str], state: Mapping[str, object]) -> None:
    """Write a state to a file; where that fails, a former file of the name stays as it was.

    An array is named by the keys that lead to it, as in ``parameters/embedding.weight``. Numbers of NumPy
    become Python's, and tuples become lists.
    """
    arrays: dict[str, Array] = {}
    header = {key: _as_json(value, key, arrays) for key, value in state.items()}
    files.write(path, KIND, arrays, header)


def read_state(path: str | os.PathLike[str]) -> dict[str, object]:
    """Return the state that `write_state` wrote to a file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_state(f"{folder}/last", {"w": np.ones(2), "history": [{"loss": math.inf}]})
    ...     read_state(f"{folder}/last")
    {'w': array([1., 1.]), 'history': [{'loss': inf}]}
    """
    if os.path.lexists(path) and not Path(path).is_file():
        fix = "delete it, or name another folder"
        raise ReadError(os.fspath(path), "a file", "a folder, a pipe, or a link that leads to no file", fix)
    arrays, header = files.read(path, KIND, ANEW)
    try:
        return {key: _restored(value, arrays) for key, value in header.items()}
    except (LookupError, TypeError, ValueError) as error:
        expected = "a checkpoint that foldbatch wrote"
        raise ReadError(os.fspath(path), expected, "a header that does not fit its arrays", ANEW) from error


Count = Annotated[int, msgspec.Meta(ge=0)]


class KeptPosition(msgspec.Struct):
    """The fields of a `Position` that a checkpoint has."""

    batches: Count
    examples: Count
    loss: float
    seconds: float


class KeptStream(msgspec.Struct):
    """The fields of a checkpoint for a stream: its number of rows, or None; a digest of the row read last."""

    rows: Count | None
    last: str


class Kept(msgspec.Struct):
    """The fields of a trainer's checkpoint besides its record."""

    parameters: dict[str, Any]
    optimizer: dict[str, Any]
    steps_drawn: Count
    epoch: Count
    steps: Count
    position: KeptPosition
    history: list[dict[str, Any]]
    stopped: str | None
    callbacks: dict[str, dict[str, Any]]
    streams: dict[str, KeptStream] = {}


@contextmanager
def taking_over(state: Mapping[str, object], where: str) -> Iterator[None]:
    """Turn errors of a state that does not fit a trainer into a ReadError of its file."""
    try:
        msgspec.convert(state, Kept)
        yield
    except FoldbatchError:
        raise
    except (msgspec.ValidationError, LookupError, TypeError, ValueError, AttributeError) as error:
        actual = f"data that do not fit: {type(error).__name__}: {error}"
        raise ReadError(where, "a checkpoint that foldbatch wrote", actual, ANEW) from error


def _as_json(value: object, where: str, arrays: dict[str, Array]) -> object:
    """Return a value of a state as JSON data; move its arrays into `arrays`, by their paths."""
    if isinstance(value, np.ndarray):
        while where in arrays:  # where names have slashes
            where += "'"
        arrays[where] = value
        return {ARRAY: where}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _as_json(entry, f"{where}/{key}", arrays) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(entry, f"{where}/{i}", arrays) for i, entry in enumerate(value)]
    if value is None or isinstance(value, str | bool | np.bool_):
        return bool(value) if isinstance(value, np.bool_) else value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        number = float(value)
        return number if math.isfinite(number) else {FLOAT: str(number)}
    fix = "a callback's state() returns dicts with keys of str, lists, numbers, strings and arrays"
    raise TrainingError(f"checkpoint at {where}", "plain data or an array", describe_value(value), fix)


def _restored(value: object, arrays: Mapping[str, Array]) -> object:
    """Return the value that `_as_json` converted, with the arrays in place again."""
    if isinstance(value, list):
        return [_restored(entry, arrays) for entry in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {ARRAY}:
        return arrays[value[ARRAY]]
    if value.keys() == {FLOAT}:
        return float(value[FLOAT])
    return {key: _restored(entry, arrays) for key, entry in value.items()}


LATE = 2  # steps that a device has still to do when the host waits for the loss of one


@dataclass(slots=True)
class Position:
    """How far the epoch under way has come."""

    batches: int = 0  # how many are done
    examples: int = 0  # how many were in them
    loss: float = 0.0  # the sum of their losses, but for those that are still to be read
    seconds: float = 0.0  # that the epoch took before training was resumed
    # losses that a device may still compute, with the numbers of their examples
    unread: deque[tuple[Any, Sequence[int]]] = field(default_factory=deque)

    def add(self, loss: float, indices: Sequence[int], examples: int) -> None:
        """Count a batch; its loss may be pending."""
        self.batches += 1
        self.examples += examples
        self.unread.append((loss, indices))

    def read(self, *, late: bool = False) -> float:
        """Read losses in the order of steps, and return the sum of those read.

        >>> from foldbatch.engines.pending import pending
        >>> position = Position()
        >>> for number in range(4):
        ...     position.add(pending(lambda: 1.0), [number], 1)
        >>> position.read(late=True), position.read()
        (2.0, 4.0)
        """
        unready = LATE if late and self.unread and isinstance(self.unread[-1][0], Pending) else 0
        while len(self.unread) > unready:
            loss, indices = self.unread[0]
            with noting(NUMBERED, indices):
                self.loss += float(loss)
            self.unread.popleft()
        return self.loss


Record = dict[str, str | Digests]  # of a training, by name: a text, or a digest of each example
# Settings that checkpoints of former versions do not name, as trainings had them then.
FORMER_SETTINGS: Record = {"optimizer's unused": text_of("zero"), "batches of an update": text_of(1)}
NAMED = 3  # differences that an error names
ONE_BY_ONE = 1 << 16  # examples whose digests a record has; of more it has one of all, to stay small


def in_record(rows: Digests) -> str | Digests:
    """Return digests as a record has them."""
    return rows if len(rows) <= ONE_BY_ONE else f"{DIGEST}{digest(rows).hex()} of {len(rows)}"


def differences(records: Sequence[Mapping[str, str | Digests]], places: Sequence[str]) -> str:
    """Return the differences between records at some places as text, or "" where there are none.

    >>> differences([{"lr": "0.1", "seed": "1"}, {"lr": "0.2", "seed": "1"}], ["in the checkpoint", "here"])
    'lr 0.1 in the checkpoint, 0.2 here'
    """
    names = dict.fromkeys(name for record in records for name in record)
    texts = [_difference(name, [record.get(name, "none") for record in records], places) for name in names]
    texts = [text for text in texts if text]
    ending = [f"{counted(len(texts) - NAMED, 'difference')} more"] * (len(texts) > NAMED)
    return ", and ".join([*texts[:NAMED], *ending])


def _difference(name: str, values: Sequence[str | Digests], places: Sequence[str]) -> str:
    """Return the difference of one entry between places as text, or '' where there is none."""
    rows = [value for value in values if isinstance(value, np.ndarray)]
    if len(rows) == len(values) and len({row.shape for row in rows}) == 1:
        pairs = zip(places, (np.flatnonzero(row != rows[0]) for row in rows), strict=True)
        starts = [f"{place} from number {numbers[0]} on" for place, numbers in pairs if len(numbers)]
        return f"other {name} {', '.join(starts)}" if starts else ""
    where: dict[str, str] = {}
    for value, place in zip(values, places, strict=True):
        text = value if isinstance(value, str) else str(len(value))
        where[text] = f"{where[text]} and {place}" if text in where else place
    if len(where) < 2:
        return ""
    if any(text.startswith(DIGEST) or len(text) > SHOWN_CHARACTERS for text in where):
        return f"another {name} {', '.join(list(where.values())[1:])} than {places[0]}"
    amount = "number of " if rows else ""
    return f"{amount}{name} {', '.join(f'{text} {place}' for text, place in where.items())}"


def traced(program: Program, examples: Sequence[object]) -> Digests:
    """Return a digest of each example's trace, ``[n] uint64``; an empty array where traces may vary.

    That is so of examples that are made when they are asked for, of those that do not fit, which their batch
    will tell, of walks that read computed numbers, and where functions draw random numbers.
    """
    none = digests(())
    repeatable = isinstance(examples, list | tuple | Rows) and len(examples) > 0
    if not repeatable or isinstance(examples[0], Prepared):
        return none  # of prepared ones the digests of examples say it
    try:
        parts = [
            _of_traces(program, examples[start : start + TRACED_TOGETHER])
            for start in range(0, len(examples), TRACED_TOGETHER)
        ]
        again = _of_traces(program, examples[:AGAIN])
    except Exception:  # noqa: BLE001 - also one of the user's own; it comes again
        return none
    return np.concatenate(parts) if np.array_equal(parts[0][: len(again)], again) else none


def _of_traces(program: Program, examples: Sequence[object]) -> Digests:
    traces = (example.trace for example in program.prepare(examples, progress=False))
    return digests([(pack(trace), trace.loose) for trace in traces])


def assign(params: MutableMapping[str, Array], values: Mapping[str, Array]) -> None:
    """Give parameters other values, which the same program had before.

    `foldbatch.params.parameters.ParameterStore.update` would warn of names that are only numbers.
    """
    for name, array in values.items():
        params[name] = array


@contextmanager
def exchanged(params: Any, values: Mapping[str, Array]) -> Iterator[None]:
    """Give parameters other values for a while.

    >>> params = {"w": np.array(1.0)}
    >>> with exchanged(params, {"w": np.array(2.0)}):
    ...     params["w"]
    array(2.)
    >>> params["w"]
    array(1.)
    """
    before = {name: np.array(params[name]) for name in values}
    assign(params, values)
    try:
        yield
    finally:
        assign(params, before)


def model_digest(program: Program) -> str:
    """Return a digest of a program's computation and random draws, for values of its parameters.

    >>> program = fb.compile(fb.Vector(2) >> fb.Linear(1, name="out"))
    >>> model_digest(program) == model_digest(fb.compile(fb.Vector(2) >> fb.Linear(2, name="out")))
    False
    """
    types = {name: str(parameter.type) for name, parameter in program.params.parameters.items()}
    parts = (program.fingerprint, program.seed, types, model.digest(program.model))
    return hashlib.sha256(repr(parts).encode()).hexdigest()
