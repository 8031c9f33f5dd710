"""Streams: examples that are read anew in each epoch, and mixed by a buffer, without being held."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from itertools import accumulate, islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from foldbatch.errors import ExampleError, ExamplePlace, TrainingError
from foldbatch.model.keys import call_keys
from foldbatch.system.showing import Described
from foldbatch.train.numbers import whole_number
from foldbatch.train.pieces import Piece, is_stream, pieces_of
from foldbatch.train.retained import Retained, joined, retained
from foldbatch.train.shards import bounds, cut, opener, shard_of_library, share, takes_rank
from foldbatch.trees.given import Row

BUFFER = 10_000  # rows of the buffer, where no number is set
HEAD_ROWS = 64  # rows that are looked at before the first epoch
# of keys: what is drawn by them. Samplers of lists draw the order of rows as here, and that of batches by 1.
OF_ROWS, OF_SLOTS, OF_PIECES = 0, 2, 3
COPIES = 4  # as many times the rows of a buffer are copied while each is replaced once
SLOTS_AT_ONCE = 1 << 20  # rows whose slots are drawn at a time
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
        sharded: whether several ranks read parts of a stream that can be cut, see `shard`; else each of them
            reads all rows, and batches are those of one process.

    Attributes:
        source: what is read.
        shuffle: rows of the buffer.
        sharded: whether several ranks read parts of it, if it can be cut.
        counted: how many rows files say that there are, or None.
        rows: how many there are; None until files, or a whole reading, tell.

    Raises:
        ExampleTypeError: when the source can be iterated once only, as a generator can, or not at all.
        TrainingError: when `shuffle` is no whole number of 0 or more. Reading raises it when there are more
            rows or fewer than in an earlier reading, or than files say.

    >>> stream = Stream(lambda: iter("abcde"), shuffle=3)
    >>> [examples for _, examples in stream.epoch(seed=0, number=0, size=2)]
    [['c', 'b'], ['a', 'd'], ['e']]
    >>> list(stream), stream.rows
    (['a', 'b', 'c', 'd', 'e'], 5)
    """

    def __init__(self, source: object, *, shuffle: int = BUFFER, sharded: bool = True) -> None:
        self.shuffle = whole_number("Stream shuffle", shuffle, 0, "0 keeps the order")
        self.sharded = sharded
        self.source = source
        self.rank, self.ranks = 0, 1  # which part of how many this stream is
        self.of = self  # the stream of all rows that can be read here
        self._read_pieces(pieces_of(opener(source, 0, 1) if takes_rank(source) else source))
        self._last = retained(()), 0  # rows, and the place of the one that was read last
        self._functions: tuple[Callable[[Any], object], ...] = ()
        self._least = 0  # rows that a reading has met, to its end or not

    def _read_pieces(self, pieces: list[Piece], firsts: Sequence[int] | None = None) -> None:
        """Read these pieces from now on; `firsts` are the numbers of their first rows in the source."""
        counts = [piece.rows for piece in pieces]
        self._pieces = pieces
        self.counted = sum(count or 0 for count in counts) if None not in counts else None
        self._firsts = firsts or [0, *accumulate(count or 0 for count in counts)][: len(counts)]
        self.rows: int | None = self.counted

    def map(self, function: Callable[[Any], object]) -> Stream:
        """Return a stream of what a function makes of each row, as rows are read: in each epoch anew.

        >>> list(Stream(["a b", "c"]).map(str.split))
        [['a', 'b'], ['c']]
        """
        mapped = Stream(self.source, shuffle=self.shuffle, sharded=self.sharded)
        mapped._functions = (*self._functions, function)
        return mapped

    def shard(self, rank: int, ranks: int, size: int) -> Stream:
        """Return the stream of the rows that one of several ranks reads; itself where each reads all rows.

        A stream that is cut has more rows than its buffer, and at least as many row groups or files as there
        are ranks; each rank reads those of its part, and of one that lies in two parts some rows. A data set
        of Hugging Face is cut by its own files. A function that has arguments `rank` and `ranks` opens the
        part of its rank. All else is read by each rank as a whole, and so is what was asked to be.

        Args:
            rank: the number of this process.
            ranks: how many there are.
            size: how many rows of all ranks make a batch.

        Raises:
            TrainingError: when a function opens parts, and a batch has fewer rows than there are ranks.

        >>> stream = Stream(lambda rank, ranks: iter(range(rank, 10, ranks)))
        >>> list(stream.shard(1, 4, 8)), len(list(stream))
        ([1, 5, 9], 10)
        """
        if ranks == 1 or self.ranks > 1 or not self.sharded:
            return self
        by_function = takes_rank(self.source)
        if by_function and size < ranks:
            fix = "a batch needs a row of each rank: set batch_size, or start fewer processes"
            raise TrainingError("stream", f"batches of {ranks} rows or more", str(size), fix)
        part: tuple[list[Piece], list[int] | None]
        if by_function:
            part = pieces_of(opener(self.source, rank, ranks)), None
        elif size < ranks:
            return self
        elif self.counted is not None:
            if self.counted <= self.shuffle or len(self._pieces) < ranks:
                return self
            part = cut(self._pieces, *bounds(self.counted, rank, ranks, size))
        elif (source := shard_of_library(self.source, rank, ranks)) is not None:
            part = pieces_of(source), None
        else:
            return self
        stream = copy(self)
        stream.rank, stream.ranks, stream._least = rank, ranks, 0
        stream.of = stream if by_function else self
        stream._read_pieces(*part)
        return stream

    @property
    def is_own(self) -> bool:
        """Whether this is the part of a rank that no other rank can read."""
        return self.ranks > 1 and self.of is self

    @property
    def first(self) -> int:
        """The number of the first row in the source, as far as files tell."""
        return self._firsts[0] if self._firsts else 0

    def __reduce__(self) -> tuple[Callable[..., Stream], tuple[Any, ...]]:
        # its source is opened anew where it arrives
        return _opened, (self.source, self.shuffle, self.sharded, self._functions, self.rows)

    def __iter__(self) -> Iterator[Row]:
        """Yield the rows in the order of the source."""
        for _, _, rows in self._arrivals(range(len(self._pieces)), 0):
            yield from self._changed_rows(([], list(rows[:])))[1]

    def parts(self, size: int) -> Iterator[list[Row]]:
        """Yield the rows in the order of the source, `size` at a time; the last part may be smaller."""
        rows = iter(self)
        while part := list(islice(rows, size)):
            yield part

    def head(self) -> list[Row]:
        """Return the first rows, at most 64."""
        return list(islice(self, HEAD_ROWS))

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
        """Return how many batches of a size an epoch has; None where that is not known yet.

        Of a part that no other rank can read it is how many have rows of this rank.
        """
        if self.of.rows is not None and not self.is_own:
            return math.ceil(self.of.rows / size)
        return None if self.rows is None else math.ceil(self.rows / share(size, self.rank, self.ranks))

    def place(self, number: int) -> str:
        """Return where a row is: in its file, if there is one.

        >>> Stream([5, 6, 7]).place(2)
        'row 2 of the stream'
        """
        place = max(bisect_right(self._firsts, number) - 1, 0)
        if self._pieces and (file := self._pieces[place].file):
            return f"row {number - self._firsts[place] + self._pieces[place].before} of {file}"
        return f"row {number} of the stream" + (f" of rank {self.rank}" if self.ranks > 1 else "")

    def name_row(self, error: ExampleError, numbers: Sequence[int]) -> None:
        """Add a note to an error that says which row its example is; `numbers` are of the batch."""
        where = error.where
        if isinstance(where, ExamplePlace) and where.example < len(numbers):
            error.add_note(f"example {where.example} is {self.place(numbers[where.example])}")

    def epoch(
        self,
        seed: int,
        number: int,
        size: int,
        completed: int = 0,
        look: Callable[[Row], None] = lambda row: None,
        turn: tuple[int, int] = (1, 0),
    ) -> Iterator[tuple[list[int], list[object]]]:
        """Yield the batches of an epoch: numbers of rows in the source, and the rows; each row once.

        Rows that arrive fill the slots of the buffer; each further one is given a slot by its number of
        arrival, and the row that was there leaves. In the end those left leave in an order of their own. So
        which rows are in the buffer after some batches is known without reading: only these are made again.

        Args:
            seed: from which epochs are shuffled.
            number: that of the epoch, counted from 0.
            size: how many rows make a batch, of all ranks; the last one may be smaller.
            completed: how many batches are left out, as they were yielded before.
            look: is called with the row that had been read last when they were.
            turn: how many readers share the batches that follow, and the number of this one: it yields those
                that are its turn, and makes no rows of others.

        Raises:
            TrainingError: when there are more rows or fewer than before.
        """
        readers, reader = turn
        for place, (numbers, parts) in enumerate(self._batches(seed, number, size, completed, look)):
            if place % readers == reader:
                rows = [row for retained_rows, places in parts for row in retained_rows.rows(places)]
                yield self._changed_rows((numbers, rows))

    def _batches(
        self, seed: int, number: int, size: int, completed: int, look: Callable[[Row], None]
    ) -> Iterator[tuple[list[int], list[tuple[Retained, Index]]]]:
        """Yield the batches of an epoch, with rows as places in what holds them; see `epoch`."""
        size, width = share(size, self.rank, self.ranks), max(self.shuffle, 1)
        leaving_before = size * completed
        # how many rows have arrived when these batches are complete
        until = width + leaving_before if self.rows is None else min(width + leaving_before, self.rows)
        slots_of = _slots(seed, number, width)
        content = _content(slots_of, width, until)  # [width]: the arrival of the row in each slot
        begin = int(content.min(initial=until)) if completed else 0
        filling: list[tuple[Retained, Index, Index]] = []  # rows, their numbers and slots
        buffer, numbers, total = retained(()), np.zeros(0, np.int64), 0
        rows: list[tuple[Retained, Index]] = []  # that have left, for the batch to come
        row_numbers: list[int] = []
        arrivals = self._arrivals(self._order(seed, number), begin)
        for arrival, their_numbers, chunk in _grouped(arrivals, max(width // COPIES, 1)):
            total = arrival + len(chunk)
            slots = slots_of(np.arange(arrival, total))
            before = min(max(until - arrival, 0), len(chunk))
            if before:
                places = np.flatnonzero(content[slots[:before]] == np.arange(arrival, arrival + before))
                filling.append((chunk.taken(places), their_numbers[places], slots[places]))
                self._last = chunk, before - 1
                if completed and arrival + before == until:
                    look(self.last)
            if before == len(chunk):
                continue
            if filling:
                buffer, numbers = _filled(filling)
                filling = []
            new = np.arange(before, len(chunk))
            sides, side_numbers = (
                joined([buffer, chunk.taken(new) if before else chunk]),
                np.concatenate([numbers, their_numbers[new]]),
            )
            leaving, staying = _replaced(slots[new], width)
            start = 0
            while (stop := start + size - len(row_numbers)) <= len(leaving):
                places = leaving[start:stop]
                batch = row_numbers + side_numbers[places].tolist(), [*rows, (sides, places)]
                rows, row_numbers, start = [], [], stop
                self._last = sides, width + stop - 1
                yield batch
            if len(places := leaving[start:]):
                rows.append((sides.taken(places), np.arange(len(places))))
                row_numbers += side_numbers[places].tolist()
            buffer, numbers = sides.taken(staying), side_numbers[staying]
            self._last = buffer, int(slots[-1])
        if filling:
            buffer, numbers = _filled(filling)
        order = self._last_order(seed, number, numbers)[max(leaving_before - max(total - width, 0), 0) :]
        while len(order):
            places, order = np.split(order, [size - len(row_numbers)])
            yield row_numbers + numbers[places].tolist(), [*rows, (buffer, places)]
            rows, row_numbers = [], []
        if rows:
            yield row_numbers, rows

    @property
    def last(self) -> Row:
        """The row that was read last in an epoch, when its latest batch was made; None before."""
        rows, place = self._last
        return rows.rows(np.array([place]))[0] if len(rows) else None

    def _changed_rows(self, batch: tuple[list[int], list[object]]) -> tuple[list[int], list[object]]:
        numbers, rows = batch
        for function in self._functions:
            rows = [function(row) for row in rows]
        return numbers, rows

    def _last_order(self, seed: int, number: int, rows: Index) -> Index:
        """Return in which order the rows that are left in the end leave the buffer, by their numbers."""
        order = np.argsort(rows, kind="stable")
        if self.shuffle <= 1:
            return order
        return order[np.argsort(call_keys(seed, number, *_pair(rows[order], OF_ROWS)), kind="stable")]

    def _order(self, seed: int, number: int) -> Sequence[int]:
        """Return in which order pieces are read in an epoch."""
        places = np.arange(len(self._pieces))
        if self.shuffle > 1:
            places = np.argsort(call_keys(seed, number, *_pair(places, OF_PIECES)), kind="stable")
        return [int(place) for place in places]

    def _arrivals(self, order: Sequence[int], start: int) -> Iterator[tuple[int, int, Sequence[object]]]:
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
        return TrainingError(where, f"{self.rows:,} rows, as {self._teller} told", actual, fix)

    @property
    def _teller(self) -> str:
        return "an earlier reading" if self.counted is None else "its files"


def _opened(
    source: object,
    shuffle: int,
    sharded: bool,  # noqa: FBT001 - arguments of what is pickled have no names
    functions: tuple[Callable[[Any], object], ...],
    rows: int | None,
) -> Stream:
    """Return a stream that another process has described."""
    stream = Stream(source, shuffle=shuffle, sharded=sharded)
    stream._functions = functions
    if rows is not None:
        stream.expect(rows)
    return stream


def stream_of(examples: object) -> Stream | None:
    """Return examples as a stream where they are one, see `foldbatch.train.pieces.is_stream`."""
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


def _pair(numbers: object, purpose: int) -> tuple[Index, Index]:
    """Return numbers and as many times a purpose, for keys."""
    array = np.asarray(numbers, np.int64)
    return array, np.full(len(array), purpose)


def _slots(seed: int, epoch: int, width: int) -> Callable[[Index], Index]:
    """Return the function that gives rows their slots by their arrivals."""

    def slots(arrivals: Index) -> Index:
        if not len(arrivals) or arrivals[-1] < width:
            return arrivals
        drawn = call_keys(seed, epoch, *_pair(arrivals, OF_SLOTS)) % width
        return np.where(arrivals < width, arrivals, drawn)

    return slots


def _content(slots_of: Callable[[Index], Index], width: int, until: int) -> Index:
    """Return the arrivals of the rows that are in the slots when so many have arrived: ``[slots]``."""
    content = np.arange(width)
    for start in range(width, until, SLOTS_AT_ONCE):
        arrivals = np.arange(start, min(start + SLOTS_AT_ONCE, until))
        content[slots_of(arrivals)] = arrivals  # of several in one slot the last one stays
    return content


def _filled(filling: Sequence[tuple[Retained, Index, Index]]) -> tuple[Retained, Index]:
    """Return rows in the order of their slots, and their numbers."""
    parts, numbers, slots = zip(*filling, strict=True)
    order = np.argsort(np.concatenate(slots))
    return joined(parts).taken(order), np.concatenate(numbers)[order]


def _replaced(slots: Index, width: int) -> tuple[Index, Index]:
    """Return the places of rows that leave a buffer, ``[n]``, and of those that stay, ``[width]``.

    Rows of the buffer have the numbers of their slots, those that arrive follow.

    >>> _replaced(np.array([1, 1, 0]), 2)
    (array([1, 2, 0]), array([4, 3]))
    """
    arriving = width + np.arange(len(slots))
    order = np.argsort(slots, kind="stable")
    in_order, again = slots[order], np.zeros(len(slots), bool)
    again[1:] = in_order[1:] == in_order[:-1]
    leaving = np.empty(len(slots), np.int64)
    leaving[order] = np.where(again, np.concatenate([[0], arriving[order][:-1]]), in_order)
    staying = np.arange(width)
    staying[slots] = arriving  # of several at one slot the last one stays
    return leaving, staying


def _grouped(
    arrivals: Iterable[tuple[int, int, Sequence[object]]], least: int
) -> Iterator[tuple[int, Index, Retained]]:
    """Yield the first arrival, numbers and rows of groups of at least so many rows; the last has the rest."""
    parts: list[Retained] = []
    numbers: list[Index] = []
    begin = 0
    for arrival, first, rows in arrivals:
        if not parts:
            begin = arrival
        parts.append(retained(rows))
        numbers.append(np.arange(first, first + len(rows)))
        if arrival + len(rows) - begin >= least:
            yield begin, np.concatenate(numbers), joined(parts)
            parts, numbers = [], []
    if parts:
        yield begin, np.concatenate(numbers), joined(parts)


__all__: Final = ["Stream"]
