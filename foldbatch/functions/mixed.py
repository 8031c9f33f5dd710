"""Blocks called in walks.

A block that a walk calls is built for the type of its argument: its drafts are cells like any others, and
its tracing program notes calls of them where the walk does. The wires that lead in and out are learnt, as
those of all cells of walks.
"""

from __future__ import annotations

import itertools
import linecache
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from types import CoroutineType
from typing import Any

from foldbatch.errors import BlockTypeError, ExampleError, FoldbatchError, WalkError
from foldbatch.functions import notes
from foldbatch.functions.cells import COUNTERS, GLOBALS, InForce, Signature, Stale, numbers
from foldbatch.functions.seam import (
    DEEPER,
    DRAW,
    SHALLOW,
    TOOLS,
    AnyBlock,
    Descent,
    Located,
    alike,
    built,
    function_name,
    interrupted,
    program_text,
    run_time_terminals,
)
from foldbatch.functions.specs import NestSpec, ValueSpec
from foldbatch.functions.values import Noted, Value, value_class
from foldbatch.model.columns import kept, of_now
from foldbatch.model.drafts import Draft
from foldbatch.recorder.lists import flattening
from foldbatch.system.showing import shown
from foldbatch.types import (
    OBJECT,
    VOID,
    BroadcastType,
    SequenceType,
    TensorType,
    TupleType,
    Type,
    describe_value,
    types_in,
)

_files = itertools.count()


def __getattr__(name: str) -> Any:
    """Return `Walk`, which stood in this module once: pickles of before look for it here."""
    if name != "Walk":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("foldbatch.functions.walks").Walk


@dataclass(frozen=True, slots=True)
class Called:
    """A function that a tracing program calls, with the types of its argument and of its result."""

    function: Callable[..., Any]
    input_type: Type
    yields: Type

    def result(self, converter: Slots, slots: tuple[object, ...]) -> tuple[Noted, ...]:
        """Call the function for the tracing program, and return its result as contents of variables.

        Args:
            converter: makes values of variables' contents, and back.
            slots: the contents of the variables that hold the argument.
        """
        x = converter.values(self.input_type, iter(slots))
        result = self.function(*x) if isinstance(self.input_type, TupleType) else self.function(x)
        where = f"Walk({function_name(self.function)})"
        if isinstance(result, CoroutineType):
            result.close()
            fix = "write it with def: with the package greenlet it may ask for numbers all the same"
            raise WalkError(where, "a function that returns", "an async def", fix)
        return tuple(converter.slots(self.yields, result, where))


def repeats(type_: Type) -> bool:
    """Whether a type has a broadcast in it, which no walk can be given."""
    return any(isinstance(part, BroadcastType) for part in types_in(type_))


# -- contents of variables of a tracing program, and values of walks


class Slots:
    """Converts contents of variables of a tracing program to values of walks, and back."""

    def value(self, type_: TensorType, number: int) -> Value:
        return value_class(type_)(number)

    def number(self, value: Value) -> int:
        return value.n

    def values(self, type_: Type, contents: Iterator[Any]) -> Noted:
        """Return a value of a type, given the contents of the variables of its terminals."""
        match type_:
            case TensorType():
                return self.value(type_, next(contents))
            case TupleType(items):
                return tuple([self.values(item, contents) for item in items])
            case SequenceType(element):
                alone = len(run_time_terminals(element)) == 1
                return [self.values(element, iter((x,) if alone else x)) for x in next(contents)]
        return None if type_ == VOID else next(contents)

    def slots(self, type_: Type, x: object, where: object) -> Iterator[object]:
        """Yield a value's terminals as the tracing program holds them: tensors are numbers, sequences lists.

        It is for results of the user's functions.

        Args:
            type_: the type that the value must have.
            x: the value.
            where: the function, for errors.

        Raises:
            WalkError: when the value is of another type.
        """
        match type_:
            case TensorType() if isinstance(x, Value) and x.type == type_:
                yield self.number(x)
            case TupleType(items) if isinstance(x, tuple) and len(x) == len(items):
                for item, part in zip(items, x, strict=True):
                    yield from self.slots(item, part, where)
            case SequenceType(element) if isinstance(x, list | tuple):
                parts = [tuple(self.slots(element, item, where)) for item in x]
                yield [part[0] if len(part) == 1 else part for part in parts]
            case _ if type_ == OBJECT:
                yield x
            case _ if type_ != VOID or x is not None:
                fix = "give what is declared; fb.tensor makes values of numbers"
                actual = f"a {x.type}" if isinstance(x, Value) else describe_value(x)
                raise WalkError(str(where), f"a {type_}", actual, fix)


def given_type(x: object, levels: int = 3) -> Type:
    """Return the type of a block's argument; a part of it that has no values in it is one object.

    Values are looked for in tuples inside each other on so many levels, and in the first items of lists. So
    an empty list is an object: a block that takes lists of values declares what it reads.

    >>> given_type((1, "a")), str(given_type((value_class(TensorType((2,)))(0), [1])))
    (ObjectType(), '(float32[2], object)')
    """
    if isinstance(x, Value):
        return x.type
    if levels and isinstance(x, tuple):
        items = tuple([given_type(item, levels - 1) for item in x])
        return TupleType(items) if any(item != OBJECT for item in items) else OBJECT
    if levels and isinstance(x, list) and x:
        element = given_type(x[0], levels - 1)
        return OBJECT if element == OBJECT else SequenceType(element)
    return OBJECT


# -- blocks in walks


@dataclass(eq=False)
class BlockInWalk:
    """A block as a walk calls it, for one type of argument."""

    block: AnyBlock
    input_type: Type  # the type of the argument
    yields: Type = field(init=False)  # the type of the result
    signatures: list[Signature] = field(init=False)  # its cells
    width: int = field(init=False)  # how many numbers a call of one takes
    calls: dict[str, Called] = field(init=False)  # the functions that its tracing program calls, by name

    def __post_init__(self) -> None:
        built_block = self._built = built(self.block, input_type=self.input_type, path=shown(self.block))
        self._compared = -1  # the number of the run in which `is_current` was last True
        self.yields, self._functions = built_block.type, built_block.functions
        if repeats(built_block.type):
            fix = "Zip it first"
            raise BlockTypeError(
                shown(self.block), "values, objects and sequences", str(built_block.type), fix
            )
        text = program_text(built_block.functions)
        self._blames, file = text.blames, f"<foldbatch block {next(_files)}>"
        linecache.cache[file] = (len(text.source), None, text.source.splitlines(keepends=True), file)
        weakref.finalize(self, linecache.cache.pop, file, None).atexit = False
        self._scope: dict[str, Any] = built_block.globals | TOOLS
        exec(compile(text.source, file, "exec"), self._scope)  # noqa: S102 - the text is our own
        self._scope[DEEPER] = Descent(
            built_block.functions, self._scope, SHALLOW
        )  # Python's own limit is the walk's
        # variables of the tracing program that begin empty at each run: lists, and dicts
        self._variables = [*built_block.collections], [*built_block.memos]
        self.calls = {name: value for name, value in built_block.globals.items() if isinstance(value, Called)}
        self.signatures = [
            _signature(draft, BlockCell(self.block, self.input_type, k, self))
            for k, draft in enumerate(built_block.drafts)
        ]
        self.width = max([1, *(len(signature.outputs) for signature in self.signatures)])
        self._scope |= {name: self._function(called) for name, called in self.calls.items()}

    def __str__(self) -> str:
        return shown(self.block)

    def is_current(self) -> bool:
        """Return whether the block would be built to the same program now: its functions read equal data."""
        if self._compared != InForce.runs or notes.State.notes is None:  # once in a run
            try:
                again = built(self.block, input_type=self.input_type, path=shown(self.block))
            except Exception:  # noqa: BLE001 - raised again by the call that builds it anew
                return False
            if not alike(self._built, again):
                return False
            self._compared = InForce.runs
        return True

    def note(self, x: object) -> Noted:
        """Note the calls of the block on an argument, and return its result."""
        lists, slots = notes.block_globals(self, self._bound), Slots()
        return slots.values(self.yields, iter(self.run(slots, lists, slots.slots(self.input_type, x, self))))

    def _bound(self) -> dict[str, object]:
        """Return the globals that the tracing program needs in the present run, by name."""
        for signature in self.signatures:
            notes.ensure(signature)
        return self.bindings(lambda kind, k, *i: GLOBALS["_".join([f"{kind}{k}", *map(str, i)])])

    def bindings(self, append: Callable[..., Any]) -> dict[str, object]:
        """Return the functions that the tracing program finds among its globals.

        `append` gives them, by kind and number of the signature; and for elements of lists (``E``), data
        (``F``) and labels (``L``) by number of these.
        """
        bindings: dict[str, object] = {}
        for k, signature in enumerate(self.signatures):
            n = signature.number
            bindings[f"row{k}"] = append("R", n)
            for i, (_, _, members) in enumerate(signature.sequences):
                bindings[f"elements{k}_{i}"] = flattening(append("E", n, i), len(members))
            for i, (_, node, _) in enumerate(signature.feeds):
                bindings[f"feed{k}_{i}"] = of_now(append("F", n, i), len(node.type.shape))
            for i in range(len(signature.labels)):
                bindings[f"label{k}_{i}"] = labelling(append("L", n, i))
        return bindings

    def run(self, slots: Slots, lists: dict[str, object], operands: Iterator[object]) -> tuple[Noted, ...]:
        """Run the tracing program on contents of variables; return the results of its root for `operands`.

        `slots` makes values for functions of the user's; `lists` are the functions of `bindings`.
        """
        scope, run = self._scope, _Run(lists, slots)
        run.variables = {name: [] for name in self._variables[0]} | {name: {} for name in self._variables[1]}
        self._enter(run)
        try:
            results: tuple[Noted, ...] = scope[self._functions[0].name](*operands, SHALLOW)
        except BaseException as error:
            for signature in self.signatures:
                notes.take_back(signature)
            if not isinstance(error, Exception) or isinstance(error, FoldbatchError | RecursionError):
                raise
            if run.outside or interrupted(error):  # of a function of the user's, as in any walk
                raise
            located = Located(self._blames, self._functions, scope, error)
            if not located.frames:
                raise
            refused = located.error(notes.example())
            refused.__suppress_context__ = True  # it has a cause where a function of the user's failed
            raise refused  # noqa: B904
        finally:
            if not run.outside:
                self._leave(run)
        return results

    def _enter(self, run: _Run) -> None:
        """Give the tracing program the globals of a run, and numbers from the next one of the walk on."""
        scope, run.first = self._scope, COUNTERS[0]
        if scope.get("lists") is not run.lists:
            scope |= run.lists
        scope |= run.variables
        scope["lists"], scope["run"] = run.lists, run
        numbers = range(run.first, COUNTERS[1] + 1, self.width)
        further = _further(run.first + len(numbers) * self.width, self.width)
        scope["numbers"] = itertools.chain(numbers, itertools.chain.from_iterable(further))
        scope[DRAW] = scope["numbers"].__next__
        notes.State.drawn -= notes.UNDER_WAY

    def _leave(self, run: _Run) -> None:
        """Give the walk numbers from the next one of the tracing program on."""
        try:
            last = next(self._scope["numbers"])
        except (ExampleError, StopIteration):  # it may take no more
            last = COUNTERS[1] + self.width
        # in one line, which nothing interrupts: what comes before leaves notes that are refused
        COUNTERS[0], notes.State.drawn = last, notes.State.drawn + notes.UNDER_WAY + last - run.first

    def _function(self, called: Called) -> Callable[..., tuple[Any, ...]]:
        """Return a function that calls a function of the user's, and may run the tracing program again.

        It is a plain function, as all are here: calls of other objects take some of the machine's stack.
        """
        scope = self._scope

        def call(*contents: object) -> tuple[Noted, ...]:
            """Call the user's function outside of the tracing program; return its result as variables."""
            run: _Run = scope["run"]
            self._leave(run)
            run.outside = True
            results = called.result(run.slots, contents)
            self._enter(run)
            run.outside = False
            return results

        return call


@dataclass(slots=True)
class _Run:
    """A run of a block's program on one argument."""

    lists: dict[str, object]  # the functions by which it notes, by name
    slots: Slots  # makes values for functions of the user's
    variables: dict[str, object] = field(default_factory=dict)  # its lists of collected values, and its memos
    outside: bool = False  # whether a function of the user's runs
    first: int = 0  # the number from which the tracing program counts


@dataclass(frozen=True, slots=True)
class BlockCell:
    """The owner of a block's signature, in the place of a `CellFunction`: it knows the block."""

    block: AnyBlock
    input_type: Type  # the type of the argument
    place: int  # the number of the cell among those of the block
    part: BlockInWalk = field(compare=False, repr=False)  # the block as a walk calls it

    is_decorated = True
    is_pure = False

    @property
    def read(self) -> object:
        """The block, whose functions read things besides arguments."""
        return self.block

    @property
    def parts(self) -> list[object]:
        """The object by which a walk calls it: the block."""
        return [self.block]

    @property
    def name(self) -> str:
        return shown(self.block)

    @property
    def subject(self) -> object:
        """The block, as the thing that the user wrote."""
        return self.block

    def is_current(self, _: Signature) -> bool:
        """Whether the block would be built to the same program now."""
        return self.part.is_current()

    def retire(self, _: Signature) -> None:
        """Let the next call build the block anew; programs that have this part go on with it."""
        InForce.changes += 1
        parts = _parts_of(self.block).by_type
        if parts.get(self.input_type) is self.part:
            del parts[self.input_type]

    def has(self, _: Signature) -> bool:
        """Whether calls of the block are of this part of a walk, and not of a later or earlier one."""
        return _parts_of(self.block).by_type.get(self.input_type) is self.part

    def reinstate(self, _: Sequence[Signature]) -> None:
        """Let calls of the block be of this part again."""
        InForce.changes += 1
        _parts_of(self.block).by_type[self.input_type] = self.part


def _further(first: int, width: int) -> Iterator[range]:
    """Yield the numbers that calls may take beyond `M`."""
    while True:
        notes.too_many(first)
        yield (numbers := range(first, COUNTERS[1] + 1, width))
        first += len(numbers) * width


def labelling(append: Callable[[object], None]) -> Callable[[object], None]:
    """Return a function that appends a copy of each label, so that later changes of it do not count."""
    return lambda label: append(kept(label))


def _signature(draft: Draft, cell: BlockCell) -> Signature:
    """Return the signature of one cell of a block, given its draft, so that a walk can note calls of it."""
    outputs = list(draft.outputs)
    numbered = {*draft.keys, *(feed for _, feed in draft.marks)}
    signature = Signature(
        draft.name,
        ("", next(numbers)),
        next(numbers),
        {},
        [("", node) for node, _ in draft.operands],
        [("", axis, [("", node) for node, _ in members]) for axis, members in draft.sequences],
        [("" if i in numbered else "x", node, feed) for i, (node, feed) in enumerate(draft.feeds)],
        [""] * len(draft.labels),
        outputs,
        NestSpec(tuple, tuple(range(len(outputs))), tuple([ValueSpec(node.type) for node in outputs])),
        [],
        draft,
        cell,
    )
    notes.begun(signature)
    return signature


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts of walks that a block has become: the type that it reads, if declared, and parts by type."""

    reads: Type | None
    by_type: dict[Type, BlockInWalk] = field(default_factory=dict)


def _parts_of(block: AnyBlock) -> _Parts:
    parts: _Parts | None = block.__dict__.get("_called")  # lives as long as the block
    if parts is None:
        parts = block.__dict__["_called"] = _Parts(block.input_type)
    return parts


def part_of(block: AnyBlock, type_: Type) -> BlockInWalk:
    """Return a block as a walk calls it, for a type of argument; made once."""
    parts = _parts_of(block).by_type
    if type_ not in parts:
        parts[type_] = BlockInWalk(block, type_)
    return parts[type_]


def present_part(block: AnyBlock, type_: Type) -> BlockInWalk:
    """Return a block as a walk calls it, built anew if data that its functions read have changed."""
    previous = _parts_of(block).by_type.get(type_)
    if previous is not None and not previous.is_current():
        del _parts_of(block).by_type[type_]
        InForce.changes += 1
    return part_of(block, type_)


def call(block: AnyBlock, xs: tuple[object, ...], run: Callable[[BlockInWalk, object], object]) -> Noted:
    """Do a call of a block in a walk by `run`, which is given the block's part and its argument.

    Raises:
        WalkError: when no walk runs.
        BlockTypeError: when the block cannot read what it is given.
    """
    x, reads = xs[0] if len(xs) == 1 else xs, _parts_of(block).reads
    if reads is None or reads == VOID or (reads == OBJECT and isinstance(x, Value)):
        reads = given_type(x)
    try:
        return run(part_of(block, reads), x)
    except Stale:
        return run(part_of(block, reads), x)
