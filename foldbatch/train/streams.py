"""Streams: examples that are read anew in each epoch, and mixed by a buffer, without being held."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import accumulate, islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from foldbatch.errors import ExampleError, ExamplePlace, TrainingError
from foldbatch.model.keys import call_keys
from foldbatch.system.showing import Described
from foldbatch.train.numbers import whole_number
from foldbatch.trees.given import Rows
from foldbatch.trees.pieces import is_stream, pieces_of

BUFFER = 10_000  # rows of the buffer, where no number is set
HEAD = 64  # rows that are looked at before the first epoch
ROWS, SLOTS, PIECES = (
    0,
    2,
    3,
)  # of keys: what they are drawn for; samplers of lists draw rows, and batches by 1
AT_ONCE = 1 << 20  # rows whose slots are drawn at a time
Index = NDArray[np.int64]


class Stream(Described):
    """Examples that are read anew in each epoch, row by row, so that they need not fit into memory.

    `Trainer.fit`, `evaluate` and `predict` take what has neither length nor items as a stream; make one
    yourself to say how large the buffer is. In training, rows are mixed: row groups of Parquet, or files of
    other data sets of Arrow, are read in another order in each epoch, and each row takes the place of another
    one, at random, in a buffer. The order follows from the trainer's seed and the number of the epoch. A
    stream that fits into its buffer makes the batches that a list of its rows makes.

    Args:
        source: a data set, a scanner or a file of Parquet of Arrow; a data set of Hugging Face that streams;
            an object that can be iterated again and again; or a function that returns one of these or an
            iterator, which is called in each epoch. It yields the same rows each time.
        shuffle: how many rows the buffer holds. With 0 or 1, rows keep their order.

    Attributes:
        source: what is read.
        shuffle: rows of the buffer.
        counted: how many rows files say that there are, or None.
        rows: how many there are; None until files, or a whole reading, tell.
        last: the row that was read last in an epoch.

    Raises:
        ExampleTypeError: when the source can be iterated once only, as a generator can, or not at all.
        TrainingError: when `shuffle` is no whole number of 0 or more. Reading raises it when there are more
            rows or fewer than in an earlier reading, or than files say.

    >>> stream = Stream(lambda: iter("abcde"), shuffle=3)
    >>> [examples for _, examples in stream.epoch(seed=0, number=0, size=2)]
    [['b', 'd'], ['c', 'a'], ['e']]
    >>> list(stream), stream.rows
    (['a', 'b', 'c', 'd', 'e'], 5)
    """

    def __init__(self, source: Any, *, shuffle: int = BUFFER) -> None:
        self.shuffle = whole_number("Stream shuffle", shuffle, 0, "0 keeps the order")
        self.source = source
        self._pieces = pieces_of(source)
        counts = [piece.rows for piece in self._pieces]
        self.counted = sum(count or 0 for count in counts) if None not in counts else None
        self._firsts = [0, *accumulate(count or 0 for count in counts)][: len(counts)]
        self.rows: int | None = self.counted
        self.last: Any = None
        self._least = 0  # rows that a reading has met, to its end or not

    def map(self, function: Callable[[Any], Any]) -> Stream:
        """Return a stream of what a function makes of each row, as rows are read: in each epoch anew.

        >>> list(Stream(["a b", "c"]).map(str.split))
        [['a', 'b'], ['c']]
        """
        mapped = Stream((), shuffle=self.shuffle)
        mapped.source, mapped.rows, mapped.counted = self.source, self.rows, self.counted
        mapped._firsts = self._firsts
        mapped._pieces = [
            replace(piece, read=partial(_mapped, function, piece.read)) for piece in self._pieces
        ]
        return mapped

    def __iter__(self) -> Iterator[Any]:
        """Yield the rows in the order of the source."""
        for _, _, rows in self._arrivals(range(len(self._pieces)), 0):
            yield from rows[:]

    def parts(self, size: int) -> Iterator[list[Any]]:
        """Yield the rows in the order of the source, `size` at a time; the last part may be smaller."""
        rows = iter(self)
        while part := list(islice(rows, size)):
            yield part

    def head(self) -> list[Any]:
        """Return the first rows, at most 64."""
        return list(islice(self, HEAD))

    def expect(self, rows: int) -> None:
        """Note how many rows an earlier training has read; refuse another number than the one known.

        Raises:
            TrainingError: when the stream has another number of rows.
        """
        if self.rows not in (None, rows):
            fix = "resume with the data that it began with"
            raise TrainingError("stream", f"{rows:,} rows, as in the checkpoint", f"{self.rows:,}", fix)
        self.rows = rows

    def batches(self, size: int) -> int | None:
        """Return how many batches of a size an epoch has; None where that is not known yet."""
        return None if self.rows is None else math.ceil(self.rows / size)

    def place(self, number: int) -> str:
        """Return where a row is: in its file, if there is one.

        >>> Stream([5, 6, 7]).place(2)
        'row 2 of the stream'
        """
        place = max(bisect_right(self._firsts, number) - 1, 0)
        if self._pieces and (file := self._pieces[place].file):
            return f"row {number - self._firsts[place] + self._pieces[place].before} of {file}"
        return f"row {number} of the stream"

    def name_row(self, error: ExampleError, numbers: Sequence[int]) -> None:
        """Add a note to an error that says which row its example is; `numbers` are of the batch."""
        where = error.where
        if isinstance(where, ExamplePlace) and where.example < len(numbers):
            error.add_note(f"example {where.example} is {self.place(numbers[where.example])}")

    def epoch(
        self, seed: int, number: int, size: int, done: int = 0, look: Callable[[Any], None] = lambda row: None
    ) -> Iterator[tuple[list[int], list[Any]]]:
        """Yield the batches of an epoch: numbers of rows in the source, and the rows; each row once.

        Rows that arrive fill the slots of the buffer; each further one is given a slot by its number of
        arrival, and the row that was there leaves. In the end those left leave in an order of their own. So
        which rows are in the buffer after some batches is known without reading: only these are made again.

        Args:
            seed: from which epochs are shuffled.
            number: that of the epoch, counted from 0.
            size: how many rows make a batch; the last one may be smaller.
            done: how many batches are left out, as they were yielded before.
            look: is called with the row that had been read last when they were.

        Raises:
            TrainingError: when there are more rows or fewer than before.
        """
        held, left = max(self.shuffle, 1), size * done
        # rows that arrive before the first of these batches is complete but for what follows it
        until = held + left if self.rows is None else min(held + left, self.rows)
        slots_of = _slots(seed, number, held)
        content = _content(slots_of, held, until)  # [slots]: the arrival of the row in each
        buffer: list[Any] = [None] * held
        numbers = [-1] * held
        batch: tuple[list[int], list[Any]] = ([], [])
        arrivals = self._arrivals(self._order(seed, number), int(content.min(initial=until)) if done else 0)
        total = 0
        for arrival, first, rows in arrivals:
            total = arrival + len(rows)
            begin = max(min(until, total) - arrival, 0)
            slots = slots_of(np.arange(arrival, total))
            if begin:
                places = np.flatnonzero(content[slots[:begin]] == np.arange(arrival, arrival + begin))
                for place, row in zip(places.tolist(), _taken(rows, places), strict=True):
                    slot = int(slots[place])
                    buffer[slot], numbers[slot] = row, first + place
                    self.last = row
                if done and arrival + begin == until:
                    look(self.last)
            if begin == len(rows):
                continue
            for row_number, slot, row in zip(
                range(first + begin, first + len(rows)), slots[begin:].tolist(), rows[begin:], strict=True
            ):
                batch[0].append(numbers[slot])
                batch[1].append(buffer[slot])
                buffer[slot], numbers[slot] = row, row_number
                if len(batch[0]) == size:
                    self.last = row
                    yield batch
                    batch = [], []
            self.last = row
        remaining = sorted((row, slot) for slot, row in enumerate(numbers) if row >= 0)
        if self.shuffle > 1 and remaining:
            keys = call_keys(seed, number, *_pair([row for row, _ in remaining], ROWS))
            remaining = [remaining[place] for place in np.argsort(keys, kind="stable")]
        for row_number, slot in remaining[max(left - max(total - held, 0), 0) :]:
            batch[0].append(row_number)
            batch[1].append(buffer[slot])
            if len(batch[0]) == size:
                yield batch
                batch = [], []
        if batch[0]:
            yield batch

    def _order(self, seed: int, number: int) -> Sequence[int]:
        """Return in which order pieces are read in an epoch."""
        places = np.arange(len(self._pieces))
        if self.shuffle <= 1:
            return places.tolist()
        return np.argsort(call_keys(seed, number, *_pair(places, PIECES)), kind="stable").tolist()

    def _arrivals(self, order: Sequence[int], start: int) -> Iterator[tuple[int, int, Sequence[Any]]]:
        """Yield consecutive rows from about the one of number `start` on, in an order of pieces.

        Each comes with how many rows are before the first one in this order, and in the source.
        """
        arrival = 0
        for place in order:
            piece, number = self._pieces[place], self._firsts[place]
            if piece.rows is not None and arrival + piece.rows <= start:
                arrival += piece.rows
                continue
            stop = number + (math.inf if self.rows is None else piece.rows or self.rows)
            for rows in piece.read():
                if number + len(rows) > stop:
                    raise self._changed(f"more than {self.rows:,}", piece.file)
                if arrival + len(rows) > start:
                    yield arrival, number, rows
                arrival, number = arrival + len(rows), number + len(rows)
                self._least = max(self._least, arrival)
            if stop not in (number, math.inf):
                raise self._changed(f"the end after {arrival:,}", piece.file)
        if arrival < self._least:
            self.rows = self._least
            raise self._changed(f"the end after {arrival:,}", "")
        self.rows = arrival

    def _changed(self, actual: str, file: str) -> TrainingError:
        where = f"stream {file}".rstrip()
        fix = "give what yields the same rows each time it is opened, as a function that opens it"
        return TrainingError(where, f"{self.rows:,} rows, as {self._told} told", actual, fix)

    @property
    def _told(self) -> str:
        return "an earlier reading" if self.counted is None else "its files"


def stream_of(examples: Any) -> Stream | None:
    """Return examples as a stream where they are one, see `foldbatch.trees.pieces.is_stream`."""
    if isinstance(examples, Stream):
        return examples
    return Stream(examples) if is_stream(examples) else None


@contextmanager
def naming_rows(stream: Stream | None, numbers: Sequence[int]) -> Iterator[None]:
    """Add a note to errors of examples that says which row of a stream it is, and of which file.

    Args:
        stream: that the examples are of; None adds nothing.
        numbers: of the rows that errors count from 0.
    """
    try:
        yield
    except ExampleError as error:
        if stream is not None:
            stream.name_row(error, numbers)
        raise


def _pair(numbers: Any, purpose: int) -> tuple[Index, Index]:
    """Return numbers and as many times a purpose, for keys."""
    array = np.asarray(numbers, np.int64)
    return array, np.full(len(array), purpose)


def _slots(seed: int, epoch: int, held: int) -> Callable[[Index], Index]:
    """Return the function that gives rows their slots by their arrivals."""

    def slots(arrivals: Index) -> Index:
        if not len(arrivals) or arrivals[-1] < held:
            return arrivals
        drawn = call_keys(seed, epoch, *_pair(arrivals, SLOTS)) % held
        return np.where(arrivals < held, arrivals, drawn)

    return slots


def _content(slots_of: Callable[[Index], Index], held: int, until: int) -> Index:
    """Return the arrivals of the rows that are in the slots when so many have arrived: ``[slots]``."""
    content = np.arange(held)
    for start in range(held, until, AT_ONCE):
        arrivals = np.arange(start, min(start + AT_ONCE, until))
        content[slots_of(arrivals)] = arrivals  # of several in one slot the last one stays
    return content


def _mapped(
    function: Callable[[Any], Any], read: Callable[[], Iterator[Sequence[Any]]]
) -> Iterator[Sequence[Any]]:
    for rows in read():
        yield [function(row) for row in rows[:]]


def _taken(rows: Sequence[Any], places: Index) -> Iterable[Any]:
    """Return some of the rows; those of a table are made objects for it."""
    if len(places) == len(rows):
        return rows[:]
    return rows.taken(places.tolist()) if isinstance(rows, Rows) else [rows[place] for place in places]


__all__: Final = ["Stream"]
