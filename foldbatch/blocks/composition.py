"""Composition: a block made of blocks that are wired to each other in any acyclic way.

Inside its scope, ``block.reads(a, b)`` says what a block reads and returns its result, a *wire*
that others may read. A block may be read by several, and may read several times: each time it is
used anew. Nothing is computed in the scope; the wires are plain data, put in order when the
composition is built.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from foldbatch.blocks.block import DERIVED, AnyBlock, Block, Result, Settings, as_block, check, opened
from foldbatch.blocks.builder import Builder
from foldbatch.blocks.building import build
from foldbatch.blocks.drafts import Value, type_of
from foldbatch.blocks.items import GetItem, Record
from foldbatch.errors import BlockTypeError, BlockUseError, BlockValueError, FoldbatchError, line_of_caller
from foldbatch.system.showing import shown
from foldbatch.types import OBJECT, VOID, Type, describe_value, is_void


class Wire:
    """A readable value in a composition's scope: its input, a block's result, or an item of these.

    ``wire[i]``, ``wire[a:b]`` select of a tuple, a sequence or an object; the wire of a `Record` of
    names also knows its names.
    """

    def __init__(
        self,
        home: Composition,
        block: AnyBlock | None,
        sources: tuple[object, ...] = (),
        *,
        selects: bool = False,
    ) -> None:
        self.home = home
        self.block = block
        self.sources = sources
        self.selects = selects  # items need no reader, other wires do
        self.line = line_of_caller()

    def __getitem__(self, key: object) -> Wire:
        block: AnyBlock | None = self.block
        if isinstance(block, Record) and block.named and not isinstance(key, slice):
            keys = [name for name, _ in block.blocks]
            if key in keys:
                key = keys.index(key)
            elif not isinstance(key, int):
                expected = f"a name of {', '.join(map(repr, keys))}"
                raise BlockValueError(repr(self), expected, repr(key), "read one that the record has")
        return self.home.add(GetItem(key), (self,), selects=True)

    __iter__ = None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            fix = "reads returns what the block yields; keep the block, as in inner = Composition()"
            raise AttributeError(f"a wire has no {name!r}; {fix}", name=name, obj=self)

    def __rshift__(self, block: object) -> Wire:
        wire: Wire = as_block(block, ">>").reads(self)
        return wire

    def reads(self, *sources: object) -> None:
        """Refuse: only the output of a composition, and blocks, read."""
        fix = "wires are read; blocks and the composition's output read them"
        raise BlockUseError(f"{self!r}.reads", "a block", "the input or a result", fix)

    def __repr__(self) -> str:
        return f"{self.home.name}.input" if self.block is None else f"wire of {shown(self.block)}"


class Output:
    """The result of a composition; ``composition.output.reads(...)`` defines it, once."""

    def __init__(self, home: Composition) -> None:
        self.home = home
        self.wire: Wire | None = None

    def reads(self, *sources: object) -> None:
        """Define the composition's result: one source as it is, several as a tuple, none as void."""
        if self.wire is not None:
            fix = "read all of it at once, as in output.reads(a, b)"
            raise BlockUseError(f"{self.home.name}.output.reads", "one call", "a second one", fix)
        self.wire = self.home.add(Output, sources)

    def __getitem__(self, key: object) -> Wire:
        self.home.refuse_output()
        raise AssertionError

    def __repr__(self) -> str:
        return f"{self.home.name}.output"


class Composition(Block[Any, Any]):
    """A block made of wired blocks.

    Args:
        name: for errors.

    ``with composition.scope():`` wires it: `input` is what the composition reads, ``output.reads(...)``
    says what it yields.

    Raises:
        BlockUseError: when blocks are wired outside of a scope, the output reads twice, or is read.
        BlockValueError: when wires go round in a circle, or to another composition's input.
        BlockTypeError: when nothing is said of the output, or a result is read by nobody.

    >>> hypotenuse = fb.Composition()
    >>> with hypotenuse.scope():
    ...     a = fb.Scalar().reads(hypotenuse.input["a"])
    ...     b = fb.Scalar().reads(hypotenuse.input["b"])
    ...     hypotenuse.output.reads(fb.Function(lambda x, y: (x * x + y * y) ** 0.5).reads(a, b))
    >>> float(hypotenuse.eval({"a": 3, "b": 4}))
    5.0
    """

    def __init__(self, name: str = "composition") -> None:
        if not isinstance(name, str):
            raise BlockTypeError("Composition", "a string as name", describe_value(name), "leave it out")
        self.name = name
        self._input = Wire(self, None)
        self._output = Output(self)
        self._wires: list[Wire] = []

    @property
    def input(self) -> Wire:
        """The wire of the composition's input."""
        return self._input

    @property
    def output(self) -> Output:
        """The composition's result; define it with ``output.reads(...)``."""
        return self._output

    @contextmanager
    def scope(self) -> Iterator[Composition]:
        """Wire blocks; scopes of other compositions may be opened inside."""
        for name in DERIVED:  # these are of the composition before
            self.__dict__.pop(name, None)
        opened.scopes.append(self)
        try:
            yield self
        finally:
            opened.scopes.pop()
        if self._output.wire is not None:
            check(self)

    def connect(self, source: object, block: Any) -> Result:
        """Let a block, or the output, read a source, as Fold writes it: ``block.reads(source)``."""
        sources = tuple(source) if isinstance(source, tuple | list) else (source,)
        is_wired = isinstance(block, Wire | Output)
        return (
            block.reads(*sources) if is_wired else self.add(as_block(block, f"{self.name}.connect"), sources)
        )

    def add(self, block: Any, sources: tuple[object, ...], *, selects: bool = False) -> Wire:
        """Use a block in this composition; returns its result."""
        if block is self:
            fix = "a recursion needs a ForwardDeclaration"
            raise BlockValueError(self.name, "wires without a circle", "the composition in itself", fix)
        checked = tuple(self._source(source) for source in sources)
        if selects:  # to select the same item twice is to read it twice
            for wire in self._wires:
                if isinstance(wire.block, GetItem) and wire.sources == checked and wire.block.same(block):
                    return wire
        wire = Wire(self, None if block is Output else block, checked, selects=selects)
        if block is not Output:
            self._wires.append(wire)
        return wire

    def refuse_output(self) -> None:
        """Refuse to read the composition's own output."""
        fix = "read what the output reads"
        raise BlockUseError(self.name, "sources that come before the output", "its own output", fix)

    def _source(self, source: object) -> Result:
        """Return a source as wires, blocks, or tuples of these, refusing wires of other scopes."""
        match source:
            case Output() if source.home is self:
                self.refuse_output()
            case Wire() | Output() if source.home is not self:
                fix = "let the inner composition read it as its input"
                raise BlockUseError(self.name, "wires of this scope", f"{source!r} of another", fix)
            case Wire() | Block():
                return source
            case tuple() | list():
                return tuple(self._source(part) for part in source)
        return self.add(as_block(source, f"{self.name}.reads"), ())

    # -- putting wires in order

    def wire_of(self, source: Any) -> Result:
        """Return the wire that a source stands for; a tuple of wires for a tuple.

        Args:
            source: a wire, a block, or a tuple of these. A block stands for its only wire in this
                composition; one that reads void and has none is used now.

        Raises:
            BlockValueError: when a block has several wires, or reads something and has none.
        """
        if isinstance(source, tuple):
            return tuple(map(self.wire_of, source))
        if isinstance(source, Wire):
            return source
        uses = [wire for wire in self._wires if wire.block is source]
        if len(uses) > 1:
            fix = "read the wire that its reads() returned"
            raise BlockValueError(self.name, f"one use of {shown(source)}", f"{len(uses)}", fix)
        if not uses and source.input_type != VOID:
            fix = "say first what it reads: block.reads(...)"
            raise BlockValueError(self.name, "a source that reads something", shown(source), fix)
        return uses[0] if uses else self.add(source, ())

    def _order(self) -> list[Wire]:
        """Return the wires that lead to the output, sources first; refuse wires in a circle."""
        placed: dict[Wire, None] = {}
        assert self._output.wire is not None
        for start in [*(wire for wire in self._wires if not wire.selects), self._output.wire]:
            stack: list[tuple[Wire, Iterator[Wire]]] = [(start, self._before(start))]
            path = {start}
            while stack:
                wire, sources = stack[-1]
                for source in sources:
                    if source in path:
                        fix = "a recursion needs a ForwardDeclaration"
                        raise BlockValueError(self.name, "wires without a circle", f"one at {wire!r}", fix)
                    if source not in placed:
                        path.add(source)
                        stack.append((source, self._before(source)))
                        break
                else:
                    stack.pop()
                    path.discard(wire)
                    placed[wire] = None
        return list(placed)

    def _before(self, wire: Wire) -> Iterator[Wire]:
        return _flat(tuple(map(self.wire_of, wire.sources)))

    def build(self, builder: Builder, value: Value) -> Value:
        """Build the blocks of all wires in order; return the output's value."""
        output = self._output.wire
        if output is None:
            fix = f"end its scope with {self.name}.output.reads(...), of nothing if it yields nothing"
            raise BlockTypeError(builder.where(self), "an output", "none", fix)
        results: dict[Wire, Value] = {self._input: value}
        read: set[Wire] = set()
        for wire in self._order():
            if wire in results:
                continue
            sources = tuple(map(self.wire_of, wire.sources))
            read.update(_flat(sources))
            values = tuple(_value(source, results) for source in sources)
            argument = values[0] if len(values) == 1 else values or None
            if wire is output:
                results[wire] = argument
                continue
            assert wire.block is not None
            with builder.at(f".{self.name}"):
                try:
                    results[wire] = build(wire.block, builder, argument)
                except FoldbatchError as error:
                    error.add_note(wire.line)
                    raise
        for wire in self._wires:
            if not wire.selects and wire not in read and not is_void(type_of(results[wire])):
                fix = "read it, or leave it out"
                raise BlockTypeError(builder.where(self), "every result to be read", repr(wire), fix)
        return results[output]

    def settings(self) -> Settings:
        return {"name": self.name}

    def state(self) -> Settings:
        """Return the wires in order, each with its block and the numbers of its sources; the input is 0."""
        numbers = {wire: number for number, wire in enumerate([self._input, *self._wires])}
        wires = [(wire.block, _numbered(wire.sources, numbers), wire.selects) for wire in self._wires]
        output = self._output.wire
        return {"wires": wires, "output": None if output is None else _numbered(output.sources, numbers)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Add the wires that `state` of an equal composition has, with their sources by number."""
        wires = [self._input]
        for block, sources, selects in state["wires"]:
            used = as_block(block, f"{self.name} wire")
            wires.append(self.add(used, _wired(sources, wires), selects=bool(selects)))
        if state["output"] is not None:
            self._output.reads(*_wired(state["output"], wires))
            check(self)

    @property
    def input_type(self) -> Type | None:
        """The type of the input where its readers are known to want an object, or where it has no reader."""
        readers = [wire for wire in self._wires if self._input in wire.sources]
        types = [wire.block.input_type for wire in readers if wire.block is not None]
        single = [len(wire.sources) == 1 for wire in readers]
        if not readers and self._output.wire is not None and self._input not in self._output.wire.sources:
            return VOID
        return OBJECT if any(s and t == OBJECT for s, t in zip(single, types, strict=True)) else None

    def __repr__(self) -> str:
        return f"Composition({self.name!r})"


def _numbered(source: object, numbers: Mapping[Wire, int]) -> Any:
    """Return a source with numbers for its wires; blocks stay."""
    if isinstance(source, tuple):
        return tuple(_numbered(part, numbers) for part in source)
    return numbers[source] if isinstance(source, Wire) else source


def _wired(source: object, wires: Sequence[Wire]) -> Any:
    """Return a source with wires for their numbers."""
    if isinstance(source, tuple):
        return tuple(_wired(part, wires) for part in source)
    return wires[source] if isinstance(source, int) else source


def _flat(source: Any) -> Iterator[Wire]:
    if isinstance(source, tuple):
        for part in source:
            yield from _flat(part)
    else:
        yield source


def _value(source: Any, results: dict[Wire, Value]) -> Value:
    if isinstance(source, tuple):
        return tuple(_value(part, results) for part in source)
    return results[source]
