"""Deciding: the examples of a batch run until each waits for a number, a round computes, and they go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from functools import partial
from itertools import chain
from types import CoroutineType
from typing import Any, Final, NamedTuple
from warnings import warn

import numpy as np
from numpy.typing import NDArray

from foldbatch.errors import WALKED, ManyRoundsWarning, WalkError, frames_inside, install
from foldbatch.functions.cells import GLOBALS, Signature
from foldbatch.functions.noted import ATOMS, Noted, joined_result, kept_result, leak, noted_in, numbers_of
from foldbatch.functions.notes import Notes, begin, may_go_deeper, noting, session
from foldbatch.functions.rounds import Computing, Rounds, Stretches
from foldbatch.functions.suspended import Fiber, Fork, Join, Walked, greenlets
from foldbatch.functions.tracer import FunctionTracer
from foldbatch.functions.values import Value
from foldbatch.scheduler.trace import Index
from foldbatch.system.processes import no_garbage

MANY: Final = 10_000  # numbers that an example waits for, after which it may never end


def decide(
    rounds: Rounds,
    computing: Computing,
    tracer: FunctionTracer,
    examples: Sequence[Any],
    numbers: Sequence[int],
    *,
    careful: bool = False,
) -> Notes:
    """Run a walk on examples in rounds, and return what they noted, example by example.

    Where `careful`, each datum is checked when it is read.
    """

    def run() -> Notes:
        batch = UnderWay(rounds, computing, tracer, traced=True)
        with no_garbage(), batch.noting(careful=careful):
            batch.join(examples, numbers)
            while batch.go():
                pass
        return batch.complete()

    return session(run, examples, numbers)


def results(
    rounds: Rounds,
    computing: Computing,
    tracer: FunctionTracer,
    examples: Sequence[Any],
    *,
    keep_going: bool = False,
    careful: bool = False,
) -> list[Any]:
    """Run a walk on examples in rounds, and return its results, with arrays in the place of values.

    With `keep_going` the result of an example whose walk raises an exception is the exception. The other
    arguments are those of `decide`.
    """

    def run() -> list[Any]:
        batch = UnderWay(rounds, computing, tracer, keep_going=keep_going)
        with no_garbage(), batch.noting(careful=careful or keep_going):
            batch.join(examples, range(len(examples)))
            while batch.go():
                pass
            batch.compute()  # what the results need and nobody asked for
        return batch.results()

    return session(run, examples, range(len(examples)))


class _Thrown(NamedTuple):
    """An error that a part of a walk has raised, for the walk that waits for it."""

    error: Exception


class UnderWay:
    """A batch under way; further examples may join between rounds."""

    def __init__(
        self,
        rounds: Rounds,  # what was learnt of the rounds of the walk
        computing: Computing,  # what computes them
        tracer: FunctionTracer,  # has the walk
        *,
        traced: bool = False,  # whether its complete notes are wanted, too
        keep_going: bool = False,  # whether others go on where the walk of one raises an exception
    ) -> None:
        self._rounds, self._computing, self._tracer = rounds, computing, tracer
        rounds.read(tracer.learnt.own)
        self._traced, self._keep_going = traced, keep_going
        self._start = self._first = GLOBALS["N"]
        self._notes = Notes(self._start)
        self.store = rounds.store  # the values so far
        self._ready: list[tuple[Fiber, Any]] = []
        self._waiting: list[Fiber] = []
        self._asked: list[Value] = []  # what each of these waits for
        self._fiber: Fiber
        self._hub: Any = None  # the greenlet that lets fibers run
        self._stretch: list[int] = []  # of each stretch whose it is, its numbers, and those before it
        self._stretches: list[int] = []
        self._max_calls = tracer.max_calls
        self._failures = False
        self._result = tracer.learnt.result
        self._parts: dict[Signature, list[Noted]] = {}
        self._numbers: list[int] = []
        self.walked: list[Walked] = []  # the examples
        self.over: list[Walked] = []  # those that have ended since somebody last looked

    def noting(self, *, careful: bool = False) -> Any:
        """Return the context in which the batch runs."""
        self.store.clear()
        kind = greenlets()
        self._hub = kind and kind.getcurrent()
        known = [*self._tracer.learnt.cells]
        return noting(self._notes, known, self._read, self._ask, careful=careful)

    def join(self, examples: Sequence[Any], numbers: Sequence[int]) -> list[Walked]:
        """Take examples in, with their numbers in the batch."""
        new = []
        for example, number in zip(examples, numbers, strict=True):
            walked = Walked(len(self.walked), number)
            self._numbers.append(number)
            self.walked.append(walked)
            new.append(walked)
            self._ready.append((Fiber(walked, self._tracer.walk, (example,)), None))
        return new

    def leave(self, walked: Walked) -> None:
        """Let an example go on no more: nobody waits for its result."""
        self._failures, walked.error = True, CancelledError()

    def go(self) -> bool:
        """Let all examples run until each waits, and compute a round; return whether some go on."""
        while self._ready:
            ready, self._ready = self._ready, []
            self._go(ready)
        if not self._waiting:
            return False
        self.compute()
        rows = self._rows(self._asked)
        waiting, self._waiting, self._asked = self._waiting, [], []
        self._go(zip(waiting, rows, strict=True))
        return True

    def _rows(self, values: list[Value]) -> list[Any]:
        rows = {}
        for kind in {*map(type, values)}:
            numbers = [value.n for value in values if value.__class__ is kind]
            places = self.store.place.take(np.array(numbers, np.int64) - self._start)
            rows[kind] = iter(self.store.take(kind, places))
        if len(rows) == 1:
            return list(rows[kind])
        return [next(rows[value.__class__]) for value in values]

    # -- fibers

    def _go(self, turns: Iterable[tuple[Fiber, Any]]) -> None:
        """Let one fiber after the other run until it waits or ends, given what it has asked for."""
        try:
            self._run(turns)
        except BaseException:
            for fiber, _ in chain(turns, self._ready):
                fiber.drop()
            raise

    def _run(self, turns: Iterable[tuple[Fiber, Any]]) -> None:
        most, first_of_round, stretch = self._max_calls, self._first, self._stretch
        wait, ask = self._waiting.append, self._asked.append
        for fiber, sent in turns:
            walked = fiber.walked
            if self._failures and (
                walked.error is not None or (fiber.join is not None and fiber.join.failed)
            ):
                fiber.drop()
                continue
            self._fiber = fiber
            first = begin(walked.number, most - walked.made)
            try:
                asked = fiber.throw(sent.error) if sent.__class__ is _Thrown else fiber.switch(sent)
            except Exception as error:
                if may_go_deeper(error):
                    raise
                asked = error  # it is raised where it belongs
            made = GLOBALS["N"] - first
            if made:
                stretch += (walked.place, made, walked.made)
                walked.made += made
            if asked is None:
                self._ended(fiber)
            elif asked.__class__ is Fork:
                self._fork(fiber, asked)
            elif isinstance(asked, Exception):
                self._failed(fiber, asked)
            elif asked.n >= first_of_round:
                wait(fiber)
                ask(asked)
            else:  # it was awaited, and is there already
                self._ready.append((fiber, None))

    def _ended(self, fiber: Fiber) -> None:
        if isinstance(fiber.result, CoroutineType):
            self._ready.append((Fiber(fiber.walked, fiber.result, (), fiber.join, fiber.place), None))
        elif fiber.join is None:
            fiber.walked.result = fiber.result
            self.over.append(fiber.walked)
        else:
            join = fiber.join
            join.results[fiber.place] = fiber.result
            join.left -= 1
            if not join.left:
                self._ready.append((join.fiber, join.results))

    def _failed(self, fiber: Fiber, error: Exception) -> None:
        self._failures = True
        if fiber.join is not None:
            fiber.join.failed = True
            self._ready.append((fiber.join.fiber, _Thrown(error)))
            return
        error.add_note(f"{WALKED}{fiber.walked.number}")
        if not self._keep_going:
            raise error
        fiber.walked.error = error
        self.over.append(fiber.walked)

    def _fork(self, fiber: Fiber, fork: Fork) -> None:
        join = Join(fiber, [None] * len(fork.parts), len(fork.parts))
        if not fork.parts:
            self._ready.append((fiber, []))
        for place, part in enumerate(fork.parts):
            self._ready.append((Fiber(fiber.walked, part, (), join, place), None))

    # -- what walks ask for

    def _ask(self, fork: Fork) -> Any:
        return self._switched(fork, "fb.together")

    def _read(self, value: Value, what: str) -> Any:
        """Return the numbers of a value of the present example; it waits until they are there."""
        if value.n >= self._first:
            walked = self._fiber.walked
            walked.asked += 1
            if walked.asked == MANY:
                where, expected = f"walk at example {walked.number}", "a loop that ends after a few rounds"
                fix = "look for one without an end; the option max_calls stops it"
                warning = ManyRoundsWarning(where, expected, f"{MANY:,} numbers that it waited for", fix)
                warn(warning, stacklevel=frames_inside())
            return self._hub.switch(value) if self._fiber.stops else self._switched(value, what)
        number, walked = value.n - self._start, self._fiber.walked
        if number < 0 or self.store.example[number] != walked.place:
            raise leak(what, walked.number)
        return self.store.row(value.__class__, number)

    def _switched(self, thing: Value | Fork, what: str) -> Any:
        """Stop the walk that runs until what it asks for is there."""
        if self._fiber.stops:
            return self._hub.switch(thing)
        if self._hub is not None:
            fix = f"write {what}(await value), and await fb.together(...)"
            raise WalkError(what, "a value that was awaited, as the walk is an async def", repr(thing), fix)
        fix = f"{install('decide')}, or write the walk as an async def, with await value"
        expected = "the package greenlet, so that the walk can wait for a number"
        raise WalkError(what, expected, "a Python without it", fix)

    # -- what they leave

    def compute(self) -> None:
        """Compute all that is pending."""
        if not self._stretch:
            return
        flat, noted = self._collected()
        stretches = Stretches(self._first - self._start, *_in_threes(self._stretch))
        self._rounds.compute(self._computing, flat, noted, stretches, self.store, self._numbers)
        self._next()

    def _next(self) -> None:
        if self._traced:
            self._stretches += self._stretch
        self._first = GLOBALS["N"]
        self._stretch = []

    def _collected(self) -> tuple[Index, dict[Signature, Noted]]:
        """Return what was noted since the last round, its numbers in one array, too."""
        called = {signature: lists for signature, lists in self._notes.lists.items() if lists.rows}
        flat = numbers_of(called.values(), self._start)
        found = noted_in(flat, called, self._start)
        for signature, noted in found.items():
            noted.feeds = [[*items] for items in noted.feeds]  # these lists go on
            noted.labels = [[*items] for items in noted.labels]
            if self._traced:
                self._parts.setdefault(signature, []).append(noted)
            lists = called[signature]
            for items in (lists.rows, *lists.elements, *lists.feeds, *lists.labels):
                items.clear()
        return flat, found

    def complete(self) -> Notes:
        """Return what was noted, example by example, as if each had run alone."""
        self._collected()
        self._next()
        examples, sizes, before = _in_threes(self._stretches)
        totals = np.array([walked.made for walked in self.walked], np.int64)
        ends = np.cumsum(totals) + self._start
        ahead = (ends - totals)[examples] + before - (np.cumsum(sizes) - sizes)
        moved = np.arange(int(sizes.sum())) + np.repeat(ahead, sizes)
        whose = np.repeat(examples, sizes)
        for signature, parts in self._parts.items():
            self._put_in_order(signature, parts, moved, whose)

        def renumbered(walked: Walked, value: Value) -> Value:
            n = value.n - self._start
            if not 0 <= n < len(moved) or whose[n] != walked.place:
                raise kept_result(walked.number)
            return value.__class__(int(moved[n]))

        notes = self._notes
        notes.ends = ends.tolist()
        notes.results = [_replaced(walked.result, partial(renumbered, walked)) for walked in self.walked]
        return notes

    def _put_in_order(self, signature: Signature, parts: list[Noted], moved: Index, whose: Index) -> None:
        """Note the calls of a cell in their complete order, given each number's new one, and example."""
        lists = self._notes.lists[signature]
        rows = np.concatenate([part.rows for part in parts])
        values = 1 + len(signature.operands)
        read = rows[:, :values]
        if read.min(initial=0) < 0:
            raise leak(signature.name, self._numbers[int(whose[read[(read < 0).any(axis=1)][0, 0]])])
        rows[:, :values] = moved.take(read)
        order = np.argsort(rows[:, 0], kind="stable")
        lists.rows += rows.take(order, axis=0).ravel().tolist()
        for s, items in enumerate(lists.elements):
            flat = moved.take(np.concatenate([part.elements[s] for part in parts]))
            lengths = rows[:, values + s]
            begins = np.cumsum(lengths) - lengths
            sizes = lengths.take(order)
            index = np.repeat(begins.take(order) - (np.cumsum(sizes) - sizes), sizes)
            items.extend(flat.take(index + np.arange(len(index)), axis=0).ravel().tolist())
        places, marks = order.tolist(), {i for _, i in signature.draft.marks}
        for i, items in enumerate(lists.feeds):
            given = [x for part in parts for x in part.feeds[i]]
            if i in marks:
                given = moved.take(np.array(given, np.int64)).tolist()
            items.extend([given[place] for place in places])
        for i, items in enumerate(lists.labels):
            given = [x for part in parts for x in part.labels[i]]
            items.extend([given[place] for place in places])

    def results(self) -> list[Any]:
        """Return what walks returned, with arrays in the place of values, or the errors that they raised."""
        return [self.shown(walked).result if walked.error is None else walked.error for walked in self.walked]

    def shown(self, walked: Walked) -> Walked:
        """Put arrays into the place of values in a result; they must have been computed."""

        def number(value: Value) -> NDArray[Any]:
            n = value.n - self._start
            if n < 0 or self.store.example[n] != walked.place:
                raise kept_result(walked.number)
            return np.array(self.store.row(value.__class__, n))

        self._result = joined_result(self._result, walked.result, 0, [], set(), walked.number)
        walked.result = _replaced(walked.result, number)
        return walked


def _in_threes(numbers: list[int]) -> Index:
    return np.fromiter(numbers, np.int64, len(numbers)).reshape(-1, 3).T


def _replaced(x: Any, value: Callable[[Value], Any]) -> Any:
    """Return a result with something else in the place of values."""
    match x:
        case Value():
            return value(x)
        case tuple():
            return tuple([_replaced(item, value) for item in x])
        case list() if {*map(type, x)} <= ATOMS:
            return [*x]
        case list():
            return [_replaced(item, value) for item in x]
    return x
