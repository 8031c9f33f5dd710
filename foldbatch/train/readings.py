"""Readings of a trainer's workers: lists that each of them holds, and streams that each of them opens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from foldbatch.errors import ExampleError, TrainingError
from foldbatch.train.parallel import Cut, note_of
from foldbatch.train.resuming import AGAIN, DIGEST, digest
from foldbatch.train.streams import Stream
from foldbatch.trees.given import Row, chosen


class BatchFacts(NamedTuple):
    """The facts about a batch that a worker tells beside its plans."""

    indices: list[int]  # of the examples in the training set
    places: list[list[int]]  # of the examples of each part in the batch
    last: str = ""  # of a stream: a digest of the row that was read last
    text: str = ""  # of a stream that several ranks read: a digest that all of them must have


@dataclass(eq=False)
class _Shares:
    """The cut of batches, which both readings have: into the parts that a rank runs."""

    cut: Cut

    def parts(self, facts: BatchFacts, examples: Sequence[object]) -> list[Sequence[Row]]:
        """Return the examples of each part."""
        return [[examples[place] for place in places] for places in facts.places]

    def name(self, error: Exception, facts: BatchFacts, part: int) -> None:
        """Add to an error of an example how its part's examples are numbered in the training set."""
        if isinstance(error, ExampleError):
            error.add_note(note_of(facts.places[part], facts.indices, 0, alone=True))


@dataclass(eq=False)
class HeldShares(_Shares):
    """Batches of a list, by the places of their examples: a `foldbatch.train.workers.Reading`."""

    examples: Sequence[Row]

    def head(self) -> Sequence[object]:
        """Return the first examples."""
        return chosen(self.examples, range(min(AGAIN, len(self.examples))))

    def begin(self, worker: int, workers: int, place: None) -> None:
        """Do nothing: each task says what it is."""

    def read(self, indices: list[int]) -> tuple[BatchFacts, Sequence[Row]]:
        """Return the examples at some places."""
        examples = chosen(self.examples, indices)
        return BatchFacts(indices, self.cut.places(examples)), examples


class Begin(NamedTuple):
    """Where a stream is read on."""

    epoch: int
    completed: int  # batches
    rows: int | None  # of the stream, as far as that is known
    before: str  # the digest of the row that was read last when these were complete; "" asks for none


@dataclass(eq=False)
class StreamedShares(_Shares):
    """Batches of a stream, which each worker opens: a `foldbatch.train.workers.Reading`.

    Args:
        cut: the parts of a batch that are run.
        stream: the stream.
        seed: from which epochs are shuffled.
        size: how many rows make a batch.
        digested: whether the row that was read last is told with each batch.
    """

    stream: Stream
    seed: int
    size: int
    digested: bool

    def head(self) -> Sequence[object]:
        """Return the first rows."""
        return self.stream.head()

    def begin(self, worker: int, workers: int, place: Begin) -> None:
        """Open the stream; of the batches that remain, those that are the worker's turn are read."""
        if place.rows is not None:
            self.stream.expect(place.rows)

        def look(row: object) -> None:
            check_row(row, place.before, place.completed)

        turn = workers, worker
        where = self.seed, place.epoch, self.size, place.completed
        self._batches: Iterator[tuple[list[int], list[object]]] = self.stream.epoch(*where, look, turn)

    def read(self, task: None) -> tuple[BatchFacts, Sequence[Row]] | None:
        """Return the next batch."""
        indices, rows = next(self._batches, ([], []))
        if not rows:
            return None
        last = digest(self.stream.last).hex() if self.digested else ""
        text = "" if self.cut.ranks == 1 else text_of_batch(indices, rows)
        return BatchFacts(indices, self.cut.places(rows), last, text), rows

    def name(self, error: Exception, facts: BatchFacts, part: int) -> None:
        """Add to an error of a row where it is."""
        super().name(error, facts, part)
        if isinstance(error, ExampleError) and self.cut.parts == 1:
            self.stream.name_row(error, [facts.indices[place] for place in facts.places[part]])


def text_of_batch(indices: Sequence[int], rows: Sequence[object]) -> str:
    """Return a text that ranks compare, to see that they read the same."""
    return DIGEST + digest((indices, rows[:1], rows[-1:])).hex()


def check_row(row: object, before: str, batches: int) -> None:
    """Refuse a stream that has another row where an earlier training had read its last.

    Args:
        row: the row.
        before: the digest of the row that it should be; "" for any.
        batches: how many batches that training had completed, for the error.
    """
    if before and digest(row).hex() != before:
        expected, fix = "the rows that the checkpoint's training read", "resume with the same data"
        raise TrainingError("fit examples", expected, f"another row before batch {batches}", fix)
