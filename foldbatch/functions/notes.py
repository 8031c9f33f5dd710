"""Notes: the calls of a walk as lists of integers and of data, which the code of cells appends to.

One run notes at a time in a process: cells are functions without an object, so what they append to is found
among the globals of their code.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import get_ident
from time import sleep
from types import CoroutineType, FrameType
from typing import Any, Final, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from foldbatch.errors import PACKAGE, ExampleError, ExamplePlace, WalkError, WalkNote
from foldbatch.functions.cells import COUNTERS, GLOBALS, CellFunction, InForce, Signature, Slow, elsewhere
from foldbatch.functions.readings import Reading, Readings
from foldbatch.functions.specs import ARGUMENT, guard
from foldbatch.functions.values import Reading as Numbers
from foldbatch.functions.values import Value, refuse_made
from foldbatch.model.columns import BadDataError
from foldbatch.model.drafts import Feed
from foldbatch.model.rereading import Snapshot
from foldbatch.operators import Recorder, no_attribute, record_with
from foldbatch.recorder.lists import CallLists, call_lists, checking
from foldbatch.system.processes import in_depth, in_place

Index = NDArray[np.int64]
T = TypeVar("T")

LOCK: Final = threading.RLock()  # one run at a time
MAX_NOTED_NUMBERS = 1_000_000  # numbers of calls, after which a run ends
# is subtracted from `State.drawn` while the program of a block runs: a run that ends meanwhile is refused
UNDER_WAY = 1 << 60
# whether a walk has room for `DEEP` calls in the thread that runs it; else it gets a thread of its own
IN_PLACE = sys.version_info[:2] == (3, 12)
# the last part of the error of a deep walk whose examples cannot be read again
DEEPER = "; or run it again, on examples as they were: from now on its walks begin with room for deep calls"
DEEP = (
    1_000_000  # the limit of calls within calls in a walk; a recursion without an end is at it within seconds
)
COMPARED_FRAMES = 1_000  # frames of a traceback among which a repeated call is looked for


@dataclass(slots=True)
class Notes:
    """The calls, results and ends of examples that a run has noted."""

    start: int  # the first number of the run
    ends: list[int] = field(default_factory=list)  # after each example, the next number
    results: list[object] = field(default_factory=list)  # what the walk returned, per example
    # by signature, in the order of the first calls
    lists: dict[Signature, CallLists] = field(default_factory=dict)
    # after rounds, `noted.Noted` by signature, in the place of `lists`
    noted: dict[Signature, Any] | None = None
    # per block that the walk calls, the names that its program finds among its globals
    block_globals: dict[object, dict[str, object]] = field(default_factory=dict)


class Forced(BaseException):
    """A walk asks for the numbers of a value in a run that computes nothing."""

    def __init__(self, reader: str) -> None:
        super().__init__(reader)
        self.reader = reader  # what asks for it, as `float`


class State:
    """The run that notes now, if any."""

    notes: Notes | None = None
    fork: Callable[[Any], object] | None = None  # runs parts of a walk side by side, there
    careful: bool = False
    reading: Reading | None = None  # of the examples
    # the reader that has asked for a number, as the walk, or NumPy, may have caught the `Forced` of it
    forced: str | None = None
    bound: Notes | None = None  # the notes that signatures append to: of this run, or an interrupted one
    deep: bool = False  # whether walks go as deep as they may
    example: int = 0  # the number of the present example in its batch, unless there is an `owner`
    owner: Callable[[], int] | None = None  # returns that number, in rounds
    may_take: Callable[[int], bool] | None = None  # whether the example may take a number beyond `M`
    # looks at a signature when the program of the run calls it for the first time; `Learnt.accept` is one
    accept: Callable[[Signature], None] | None = None
    # signatures that compute nothing, and were called in this run
    asked: list[Signature] = []  # noqa: RUF012
    drawn: int = 0  # numbers taken since the last round, without those that `taken_by` counts


class Forks:
    """Forks of the process, which wait for the end of a run, so that no child begins in the midst of one.

    A run that may never end lets them pass between two rounds, see `let_forks_pass`.
    """

    gate: Any = threading.Lock()  # guards the attributes below
    waiting: int = 0  # threads that are about to fork
    passing: Final = set[int]()  # the threads for which a run stands still
    paused: bool = False  # whether a run stands still
    MOMENT: Final = 0.002  # seconds between two checks


def _before_fork() -> None:
    """Wait, before this thread forks the process, until no run is under way or the run lets forks pass."""
    thread = get_ident()
    with Forks.gate:
        Forks.waiting += 1
    while not LOCK.acquire(timeout=Forks.MOMENT):
        with Forks.gate:
            if Forks.paused:
                Forks.passing.add(thread)
                return


def _after_fork() -> None:
    """Release the lock of runs that `_before_fork` has taken; called in the parent after the fork."""
    thread = get_ident()
    with Forks.gate:
        Forks.waiting -= 1
        if thread in Forks.passing:
            Forks.passing.discard(thread)
            return
    LOCK.release()


def _after_fork_in_child() -> None:
    """Free the lock in a child, and end a run there that another thread of the parent had begun."""
    passed = get_ident() in Forks.passing
    Forks.gate, Forks.waiting, Forks.paused = threading.Lock(), 0, False  # another thread may have held it
    Forks.passing.clear()
    if not passed:
        LOCK.release()
        return
    LOCK._at_fork_reinit()  # type: ignore[attr-defined] # a thread has it that is not in this process
    State.deep, State.reading = False, None
    end_noting()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)


def let_forks_pass() -> None:
    """Stand still between two rounds while other threads fork."""
    if not Forks.waiting:
        return
    Forks.paused = True
    while True:
        sleep(Forks.MOMENT)
        with Forks.gate:
            if not Forks.waiting:
                Forks.paused = False
                return


def running() -> bool:
    """Whether calls of cells in this thread are noted."""
    return COUNTERS[2] == get_ident()


def lists_of(signature: Signature) -> CallLists:
    """Return empty lists for calls of a signature."""
    lists = call_lists(len(signature.sequences), len(signature.feeds), len(signature.labels))
    lists.bound = {name: lists.appender(*place) for name, place in signature.names.items()}
    return lists


def bind(signature: Signature) -> CallLists:
    """Give a signature lists in the present run.

    Raises:
        WalkError: when no walk runs.
    """
    notes = State.notes
    if notes is None or not running():
        elsewhere(signature.name)
    empty = signature.spare or lists_of(signature)
    if signature.coded is not None:
        signature.coded.unbind()
    signature.spare, notes.lists[signature], lists = None, empty, empty  # in one line: not interrupted
    GLOBALS.update(lists.bound)
    if signature.coded is not None and not State.careful:
        signature.coded.bind(lists.all)
    if State.careful:
        for i, (where, _, feed) in enumerate(signature.feeds):
            if where:
                GLOBALS[f"F{signature.number}_{i}"] = _checking(signature, lists, i, feed)
    return lists


def give_back(notes: Notes) -> None:
    """Empty the lists of a run that are read no more, and leave them to later runs."""
    for signature, lists in notes.lists.items():
        lists.clear()
        signature.spare = lists


def block_globals(part: object, make: Callable[[], dict[str, object]]) -> dict[str, object]:
    """Return the globals of a block's program in the present run, by name; `make` makes them at first."""
    notes = State.notes
    assert notes is not None, "only a walk that runs has parts"
    if part not in notes.block_globals:
        notes.block_globals[part] = make()
    return notes.block_globals[part]


def ensure(signature: Signature) -> None:
    """Give a signature lists in the present run, if it has none; errors are those of `bind_first`."""
    notes = State.notes
    if notes is None or signature not in notes.lists:
        bind_first(signature)


def bind_first(signature: Signature) -> CallLists:
    """Accept a signature that the program of the run calls for the first time, and return lists for it.

    Raises:
        WalkError: when no walk runs, or the program knows the cell from a model that has changed since.
        Stale: when the signature is of such a model.
    """
    accept(signature)
    return bind(signature)


def accept(signature: Signature) -> None:
    """Look at a signature that the program of the run calls for the first time; errors: see `bind_first`."""
    if State.accept is not None and running():
        State.accept(signature)


def example() -> int:
    """Return the number of the present example in its batch."""
    return State.example if State.owner is None else State.owner()


def unbind(signature: Signature) -> None:
    """Let the next call of a signature ask for lists."""
    if signature.unbound is None:
        rows, reference = (
            f"R{signature.number}",
            weakref.ref(signature),
        )  # globals must not keep its cell alive

        def first(row: Sequence[int]) -> None:
            """Note the first call of a signature in a run: bind its lists, or accept it if it is silent."""
            called = reference()
            assert called is not None, "the code of a cell runs without its signature"
            if called.silent:
                accept(called)
                State.asked.append(called)
                GLOBALS[rows] = _passed
            else:
                bind_first(called).bound[rows](row)

        signature.unbound = dict.fromkeys(signature.names, _nowhere) | {rows: first}
    if signature.coded is not None:
        signature.coded.unbind()
    GLOBALS.update(signature.unbound)


def _passed(_: object) -> None:
    """Note nothing of a call that computes nothing."""


def begun(signature: Signature) -> None:
    """Register a new signature: it is fresh in this run, and its first call asks for lists."""
    InForce.fresh.add(signature)
    unbind(signature)


def _nowhere(_: object) -> NoReturn:
    raise AssertionError("a call is noted in the middle")


def note_rows(signature: Signature, rows: Sequence[object]) -> range | None:
    """Note a call for each row of data, all at once, of a cell that reads one datum and yields one value.

    Returns the numbers of the calls; None where each call is to be made by itself: in rounds, and where data
    are checked one by one. An example that takes too many numbers is refused at the call that reads the rows.
    """
    first, count = COUNTERS[0], len(rows)
    one_by_one = State.careful or State.owner is not None or State.may_take is not None
    if not running() or one_by_one:
        return None
    ensure(signature)
    assert State.notes is not None, "a walk runs"
    lists, numbers = State.notes.lists[signature], range(first, first + count)
    (data,) = lists.feeds
    before = len(lists.rows)
    try:
        lists.rows.extend(numbers)
        data.extend(rows)
        COUNTERS[0] = first + count
    except BaseException:  # of a handler of signals: nothing has been noted
        del lists.rows[before:]
        del data[before:]
        raise
    return numbers


def _checking(signature: Signature, lists: CallLists, i: int, feed: Feed) -> Callable[[Any], None]:
    """Return the function by which calls append data of a feed, with each datum checked first.

    It is used where an error must name the example; else data are checked by columns at the end.

    Args:
        signature: the signature that is called.
        lists: its lists, to which the data are appended.
        i: the number of the feed.
        feed: its type, and its name in errors.
    """
    check = checking(feed, signature.bounds[i], lists.feeds[i])

    def checked(item: object) -> None:
        """Check a datum as its cell reads it, and append it."""
        try:
            check(item)
        except BadDataError as error:
            if State.reading is not None:
                State.reading.history.refused += 1
            if not isinstance(signature.cell, CellFunction):  # the error of a block's program names it
                raise
            where = ExamplePlace(feed.where, example())
            raise error.kind(where, error.expected, error.found, error.fix) from None

    return checked


def take_back(signature: Signature, number: int | None = None) -> None:
    """Remove the last call of a signature from its lists if it was noted in part, or has this number.

    A datum was refused, or a handler of signals raised in the midst of it, and the walk may go on.
    """
    lists = None if State.notes is None else State.notes.lists.get(signature)
    if lists is None or not lists.rows:
        return
    width, sizes = signature.arguments, [max(len(members), 1) for *_, members in signature.sequences]
    del lists.rows[len(lists.rows) // width * width :]  # a row that broke off, at what is no number
    if not lists.rows:
        return
    calls = len(lists.rows) // width - (lists.rows[-width] == number)
    count = min([calls, *map(len, lists.feeds), *map(len, lists.labels)])
    lengths = [lists.rows[1 + len(signature.operands) + s :: width] for s in range(len(sizes))]
    parts = [*zip(lists.elements, lengths, sizes, strict=True)]
    count -= any(sum(counts[:count]) * size > len(flat) for flat, counts, size in parts)
    del lists.rows[count * width :]
    for items in (*lists.feeds, *lists.labels):
        del items[count:]
    for flat, counts, size in parts:
        del flat[sum(counts[:count]) * size :]


def _undo(of: int, number: int, name: str, read: Sequence[object]) -> None:
    """Remove a call that broke off; `of` is the number of its signature, `name` and `read` are for errors.

    Raises:
        WalkError: when it broke off because a value among those that it reads was made by hand.
    """
    for signature in [] if State.notes is None else [*State.notes.lists]:
        if signature.number == of:
            take_back(signature, number)
    refuse_made(read, name)


def taken_by(signature: Signature) -> int:
    """Return the count of numbers that a call takes and `State.drawn` leaves out: none of calls of blocks."""
    return signature.width if isinstance(signature.cell, CellFunction) else 0


def refuse_broken(notes: Notes, first: int) -> None:
    """Check that a walk's calls took consecutive value numbers, each call before the next one began.

    Args:
        notes: the notes of the run.
        first: the first value number to be checked; the last one is the last taken.

    Raises:
        WalkError: when numbers are missing, as another thread noted a call, or an interrupt broke one off.
    """
    taken = State.drawn + sum(
        len(lists.rows) // signature.arguments * taken_by(signature)
        for signature, lists in notes.lists.items()
    )
    missing = COUNTERS[0] - first - taken
    if missing >= UNDER_WAY // 2:
        expected = "blocks that read data of the example"
        actual = "a value that one has read, or one broken off by a handler of signals"
        fix = "declare what the function returns, as in Walk(function, 'float32[3]'); or read it in the walk"
        raise WalkError(ExamplePlace("walk", State.example), expected, actual, fix)
    if missing:
        expected = "one call of a cell after the other"
        actual = "some in the midst of others, or broken off by a handler of signals"
        fix = "call cells in the thread of the walk, and let what handlers raise end the run"
        raise WalkError(ExamplePlace("walk", State.example), expected, actual, fix)


@dataclass(slots=True)
class InTurn:
    """A walk that runs on one example after the other, until one waits for a number."""

    walk: Callable[[Any], Any]
    notes: Notes
    reading: Reading
    max_calls: int  # how many numbers an example may take
    waits: bool = False  # whether the present example waits, so that the others go on in rounds
    coroutine: Any = None  # the coroutine that the present walk returned, if it is an ``async def``

    def go(self) -> object:
        """Run the walks; return None at the end, or the result of an example that has waited meanwhile.

        Errors tell the example's number in the batch.
        """
        notes = self.notes
        for example, number in zip(self.reading.examples, self.reading.numbers, strict=True):
            begin(number, self.max_calls)
            try:
                result = self.walk(example)
            except Exception as error:
                if State.forced is not None:
                    raise Forced(State.forced) from None
                if self.waits or may_go_deeper(error):
                    raise
                name_example(error, number)
                raise
            if self.waits:
                return result
            if State.forced is not None:
                raise Forced(State.forced)
            if isinstance(result, CoroutineType):
                self.coroutine = result
                return None
            notes.results.append(result)
            notes.ends.append(COUNTERS[0])
            if COUNTERS[0] - notes.start > MAX_NOTED_NUMBERS:
                break
        return None


def note(
    walk: Callable[[Any], object],
    reading: Reading,
    signatures: Sequence[Signature],
    max_calls: int,
    recorder: Recorder,
    *,
    careful: bool = False,
    accept: Callable[[Signature], None] | None = None,
) -> Notes:
    """Run a walk that reads no numbers on examples, and return what it noted.

    `recorder` is given the calls of ops and layers. An example may take `max_calls` numbers. Where `careful`,
    each datum is checked when it is read: an error comes from the call that it is for. `accept` is called
    with each other signature at its first call.

    Raises:
        Forced: when the walk asks for a number.
        WalkError: when the walk does what no walk may do, as one that calls cells in another thread.
        Exception: that the walk raises, with a note of the example.
    """

    def run() -> Notes:
        """Run the walk on each example in turn, and return the notes."""
        notes = Notes(COUNTERS[0])
        in_turn = InTurn(walk, notes, reading, max_calls)
        with noting(notes, signatures, recorder, careful=careful, accept=accept):
            in_turn.go()
            if in_turn.coroutine is not None:
                in_turn.coroutine.close()
                raise Forced("await")
            refuse_broken(notes, notes.start)
        return notes

    return session(run, reading)


def forking() -> Callable[[object], Any] | None:
    """Return the function that runs parts of the present walk side by side, or None outside of rounds."""
    return State.fork


def begin(number: int, max_calls: int) -> int:
    """Set the example that runs now, by its number in the batch, and how many numbers it may still take.

    Returns the first of these.
    """
    State.example = number
    first: int = COUNTERS[0]
    COUNTERS[1] = first + max_calls
    return first


def session(run: Callable[[], T], reading: Reading | None) -> T:
    """Run a function that runs walks, alone in the process and with room for deep calls; return its result.

    Without a reading its examples cannot be read twice, so walks go as deep as Python lets them.

    Raises:
        WalkError: when a walk runs already; or when one calls itself deeper than Python lets it by default,
            and its examples cannot be read again.
    """
    with LOCK:
        if State.notes is not None:
            fix = "run it before, or call its function itself"
            raise WalkError("walk", "calls of cells, layers and functions", "a run of a program in it", fix)
        State.deep, State.reading = reading is None or IN_PLACE, reading
        try:
            if IN_PLACE and reading is not None:
                return in_place(run, DEEP)
            if reading is not None and reading.history.deep:
                State.deep = True
                return in_depth(run, DEEP, locals_of(reading.history.walk))
            return run()
        except RecursionError:  # the walk calls itself deeper than Python lets it by default
            if State.deep or reading is None:
                raise
            if reading.obstacle() is not None:
                reading.history.deep = True  # so that it works in the next run
            reading.refuse_second("a walk this deep begins anew", DEEPER)
            State.deep = True
            return in_depth(run, DEEP, locals_of(reading.history.walk))
        finally:
            try:
                State.deep, State.reading = False, None
            finally:  # where a tracer has raised in the line above, or at the end of the run
                if State.notes is not None:
                    end_noting()


def locals_of(walk: object) -> list[threading.local]:
    """Return the `threading.local` objects that a walk reads as globals or in its closure.

    A walk that runs deep runs in a thread of its own, and these objects must have the same contents there.
    """
    function = getattr(walk, "__func__", walk)
    if not hasattr(function, "__globals__"):
        function = vars(type(walk)).get("__call__")
    values = [*getattr(function, "__globals__", {}).values()]
    for cell in getattr(function, "__closure__", None) or ():
        with suppress(ValueError):  # nothing is in it yet
            values.append(cell.cell_contents)
    local_objects = {id(value): value for value in values if isinstance(value, threading.local)}
    return [*local_objects.values()]


def may_go_deeper(error: Exception) -> bool:
    """Whether an error is that of a recursion beyond Python's default limit, so that more room may help."""
    return isinstance(error, RecursionError) and not State.deep


def name_example(error: Exception, number: int) -> None:
    """Add the number of its example to an error, and to a RecursionError the call that repeats itself."""
    error.add_note(WalkNote(number))
    if isinstance(error, AttributeError) and isinstance(error.obj, Value):
        error.args = (no_attribute(str(error.name)),)  # here, as values have no `operators.unknown`
    trace, seen = error.__traceback__, set[tuple[object, ...]]()
    while isinstance(error, RecursionError) and trace is not None and len(seen) < COMPARED_FRAMES:
        code, scope = trace.tb_frame.f_code, trace.tb_frame.f_locals
        arguments = [scope.get(name) for name in code.co_varnames[: code.co_argcount]]
        trace = trace.tb_next
        if not arguments or code.co_filename.startswith((PACKAGE, "<foldbatch")):
            continue
        if (call := (code, *map(id, arguments))) in seen and not any(
            isinstance(x, Iterator) for x in arguments
        ):
            place = f"{code.co_qualname} ({Path(code.co_filename).name}:{code.co_firstlineno})"
            error.add_note(
                f"foldbatch: {place} is called again with what it was given: do data hold themselves?"
            )
            return
        seen.add(call)


def line_of(
    walk: Callable[[object], object],
    example: object,
    signature: Signature,
    call: int,
    max_calls: int,
    recorder: Recorder,
    accept: Callable[[Signature], None] | None = None,
) -> str:
    """Return the line of the user's code that makes a call, counted from 0: ``in tree (model.py:31)``.

    `recorder` and `accept` are those of `noting`.
    """
    places: list[str] = []

    def seen(_: Signature, frame: FrameType | None) -> None:
        """Keep the line of the innermost frame that is not of this package."""
        if frame is not None:
            code = frame.f_code
            places.append(f"in {code.co_qualname} ({Path(code.co_filename).name}:{frame.f_lineno})")

    watch_calls(walk, example, [signature], seen, max_calls, recorder, accept, begin=places.clear)
    return places[call] if call < len(places) else ""


def watch_calls(
    walk: Callable[[Any], object],
    example: object,
    signatures: Sequence[Signature],
    seen: Callable[[Signature, FrameType | None], None],
    max_calls: int,
    recorder: Recorder,
    accept: Callable[[Signature], None] | None = None,
    begin: Callable[[], None] = lambda: None,
) -> None:
    """Run a walk on an example once more, up to the first number that it reads, to look at calls.

    Args:
        walk: the walk.
        example: the example.
        signatures: those whose calls are looked at.
        seen: is told of each call, with the innermost frame that is not of this package.
        max_calls: how many numbers the example may take.
        recorder: as for `noting`.
        accept: as for `noting`.
        begin: is called when the walk begins, which it may do twice where it goes deep.
    """

    def watched(example: object) -> Any:
        """Run the walk on an example, and tell of its calls."""
        begin()
        for signature in signatures:
            if signature.coded is not None:
                signature.coded.unbind()
            GLOBALS[f"R{signature.number}"] = noting_of(signature, GLOBALS[f"R{signature.number}"])
        return walk(example)

    def noting_of(signature: Signature, append: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return a function that tells of a call, and then appends its row."""

        def noted(row: Sequence[int]) -> None:
            frame: FrameType | None = sys._getframe(1)
            while frame is not None and frame.f_code.co_filename.startswith((PACKAGE, "<foldbatch")):
                frame = frame.f_back
            seen(signature, frame)
            append(row)

        return noted

    with suppress(Forced):  # numbers are not there now: calls are known up to the first that is read
        reading = Reading([example], [0], Readings(), Snapshot([example]))
        note(watched, reading, [*signatures], max_calls, recorder, accept=accept)


class _Noting:
    """The context of a run, in which calls of cells and of layers are noted."""

    __slots__ = ("_arguments",)

    def __init__(
        self,
        notes: Notes,
        signatures: Sequence[Signature],
        recorder: Recorder,
        read: Callable[[Value, str], object] | None,
        fork: Callable[[object], object] | None,
        accept: Callable[[Signature], None] | None,
        *,
        careful: bool,
    ) -> None:
        self._arguments = notes, signatures, recorder, read, fork, accept, careful

    def __enter__(self) -> None:
        notes, signatures, recorder, read, fork, accept, careful = self._arguments
        try:
            _unbind_all()
            State.careful, State.fork, State.bound, COUNTERS[2] = careful, fork, notes, get_ident()
            State.drawn, State.forced, State.accept = 0, None, accept
            if InForce.fresh:
                InForce.fresh.clear()
            InForce.runs += 1
            record_with(recorder)
            State.notes, Numbers.read = notes, read or _forced  # type: ignore[method-assign, assignment]
            for signature in signatures:
                bind(signature)
        except BaseException:
            end_noting()
            raise

    def __exit__(self, *error: object) -> None:
        end_noting()


def noting(
    notes: Notes,
    signatures: Sequence[Signature],
    recorder: Recorder,
    read: Callable[[Value, str], Any] | None = None,
    fork: Callable[[Any], object] | None = None,
    *,
    careful: bool = False,
    accept: Callable[[Signature], None] | None = None,
) -> _Noting:
    """Return a context in which calls of cells are noted.

    `recorder` is given the calls of ops and layers. `read` finds the numbers of values, and `fork` runs parts
    of a walk side by side; see `listen`. `accept` is called with each signature that is not among
    `signatures`, at its first call.
    """
    return _Noting(notes, signatures, recorder, read, fork, accept, careful=careful)


def end_noting() -> None:
    """Let calls of cells be noted no more; a second time does nothing."""
    record_with(None)
    # in one line, which nothing interrupts
    Numbers.read, State.notes, COUNTERS[2] = unknown, None, 0  # type: ignore[method-assign]
    State.fork = State.owner = State.may_take = State.accept = None
    _unbind_all()
    if InForce.fresh:
        InForce.fresh.clear()


def listen(
    read: Callable[[Value, str], object],
    fork: Callable[[Any], object],
    owner: Callable[[], int],
    may_take: Callable[[int], bool],
) -> None:
    """Let the present run go on in rounds.

    Args:
        read: finds the numbers of values.
        fork: runs parts of a walk side by side.
        owner: returns the number of the present example.
        may_take: returns whether that may take a number which is beyond the last one of `COUNTERS`.
    """
    State.fork, State.owner, State.may_take = fork, owner, may_take
    Numbers.read = read  # type: ignore[assignment,method-assign]


def _unbind_all() -> None:
    """Unbind the signatures that the last run has bound, also where it was interrupted."""
    if State.bound is not None:
        for signature in State.bound.lists:
            unbind(signature)
    State.bound = None
    while State.asked:
        unbind(State.asked.pop())


def first_call(cell: CellFunction, arguments: dict[str, object]) -> object:
    """Note a call of a structure that the cell's code does not have, and return its result."""
    if not running():
        elsewhere(cell.name)
    count = len(cell.signatures)
    signature = cell.find(arguments)
    if len(cell.signatures) == count and not fits(signature, arguments):
        actual = "lists whose elements are not alike, or change while the call is noted"
        fix = "give elements of one shape and dtype"
        raise WalkError(cell.name, "arguments of one structure", actual, fix)
    if len(cell.signatures) == count:  # its code is left by values made by hand alone
        refuse_made(tuple(arguments.values()), cell.name)
    return cell.called(signature, arguments)


def fits(signature: Signature, arguments: dict[str, object]) -> bool:
    """Whether arguments of a signature's structure meet the conditions in its code."""
    namespace = {ARGUMENT + name: x for name, x in arguments.items()}

    def name_of(value: object) -> str:
        name = f"K{len(namespace)}"
        namespace[name] = value
        return name

    conditions = [g for name, spec in signature.specs.items() for g in guard(spec, ARGUMENT + name, name_of)]
    return all(eval(condition, namespace) for condition in conditions)  # noqa: S307 - the text is our own


def too_many(number: int) -> None:
    """Refuse an example that makes more calls than allowed, where it may not take a number beyond `M`."""
    if State.may_take is not None and State.may_take(number):
        return
    fix = "look for a loop without an end, or raise the option max_calls"
    raise ExampleError(ExamplePlace("walk", example()), "fewer calls", "more than max_calls", fix)


unknown = Numbers.read  # the function that reads a number outside of runs


def _forced(value: Value, reader: str) -> object:
    """Stop a run that computes nothing, where its walk asks for a number."""
    if running():
        State.forced = reader
        raise Forced(reader)
    return unknown(value, reader)


GLOBALS["STOP"], GLOBALS["UNDO"], GLOBALS["NOWHERE"] = too_many, _undo, elsewhere
Slow.register = begun
