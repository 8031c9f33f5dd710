"""Building: from a tree of blocks to a tracing program and the cells it calls.

Blocks run once, on symbolic values. Their work on Python objects becomes statements of a tracing program
that walks one example (`tracing`); what they do to tensors becomes nodes of a *region*'s graph. A region
is a stretch of the tracing program without choice or repetition: all its tensor work that can wait is
cut into as few cells as possible, usually one, so that blocks which always run together are
one call. Results of calls are numbers; the tracing program never touches a tensor.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as PySequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from operator import itemgetter

from foldbatch.blocks.drafts import (
    Drafted,
    FeedReading,
    MetricVisit,
    Object,
    Procedure,
    Region,
    Repeated,
    Sequence,
    Terminal,
    Value,
    feed,
    leaves,
    new_wires,
    run_time_terminals,
)
from foldbatch.blocks.printing import text
from foldbatch.blocks.tracing import Append, Assign, Call, Datum, Expression, Statement, Tuple
from foldbatch.blocks.writer import Writer
from foldbatch.errors import BlockTypeError
from foldbatch.model.drafts import ASIDES, Draft, Flow
from foldbatch.model.labels import numbered
from foldbatch.params.parameters import Parameter
from foldbatch.static.graph import INPUT, PARAMETER, Node, apply, input_node, reachable
from foldbatch.static.op import CALL, UNBATCHED, Axis, ragged
from foldbatch.static.ops.random import KEY
from foldbatch.types import (
    VOID,
    BroadcastType,
    ObjectType,
    SequenceType,
    TensorType,
    TupleType,
    Type,
    VoidType,
)

MARK = TensorType((), "int32")
MODEL = "model"  # the beginning of paths, unless a declaration's name is


class Builder(Writer):
    """Collects cells and functions while blocks are built; one per compilation.

    `inferring` says that only types are wanted; `asides`, which losses and metrics are.
    """

    def __init__(
        self, root: object = MODEL, *, inferring: bool = False, asides: frozenset[str] = ASIDES
    ) -> None:
        super().__init__(root, inferring=inferring)
        self.asides = asides
        self.left_out = False  # whether a loss or metric stands in the block that is not wanted
        self.functions: list[Procedure] = []
        self.drafts: list[Draft] = []
        self.metric_types: dict[str, TensorType] = {}
        self.declared: dict[object, Procedure] = {}
        self.collections: dict[str, Sequence] = {}  # by name, once something is collected
        self.collecting: dict[str, str] = {}  # by name, the variable that holds the list
        self.parameters: dict[Parameter, None] = {}
        self.labels: list[tuple[str, ...]] = []  # of cells, by number: those to choose from
        self._roots = set() if inferring else {str(root)}
        self._origins: dict[Node, tuple[int, Origin]] = {}  # numbered in the order of blocks
        # drafted nodes that depend on parameters and constants alone, and so are equal in all calls
        self._equal_in_calls: set[Node] = set()

    @classmethod
    def scratch(cls, root: object) -> Builder:
        """Return a builder to infer types with; its statements are thrown away."""
        builder = cls(root, inferring=True)
        builder._function = builder.declare(builder, "scratch", VOID, VOID)
        builder._regions = [Region()]
        return builder

    def wants(self, aside: str) -> bool:
        """Return whether ``losses`` or ``metrics`` are wanted; note it if one is left out."""
        self.left_out |= aside not in self.asides
        return aside in self.asides

    # -- tensors in and out of a region

    def receive(self, slot: Terminal) -> Value:
        """Return the value of a terminal that arrives from outside the region."""
        match slot.type:
            case TensorType():
                node = input_node(slot.type, name=text(slot.expression))
                self.region.values[node] = (slot.expression, slot.wires)
                return node
            case SequenceType(element):
                return Sequence(slot.expression, element, slot.wires)
            case ObjectType():
                return Object(slot.expression, slot.place)
        raise AssertionError(slot)

    def unflatten(self, type_: Type, slots: Iterator[Terminal]) -> Value:
        """Return a value of a type whose terminals arrive in `slots`."""
        match type_:
            case VoidType():
                return None
            case TupleType(items):
                return tuple(self.unflatten(item, slots) for item in items)
            case BroadcastType(element):
                return Repeated(self.unflatten(element, slots))
            case _:
                return self.receive(next(slots))

    def specimen(self, type_: Type) -> Value:
        """Return a value of a type, made of new inputs, from which a block's result can be inferred."""
        slots = (Terminal(self.fresh("x"), t, new_wires(t)) for t in run_time_terminals(type_))
        return self.unflatten(type_, slots)

    def renewed(self, value: Value) -> Value:
        """Return another value of the same `pattern`, whose tensors are new inputs."""
        match value:
            case Node() if value.axis is UNBATCHED:
                return value
            case Node():
                return self.specimen(value.type)
            case Repeated():
                return Repeated(self.renewed(value.value))
            case tuple():
                return tuple(self.renewed(item) for item in value)
        return value

    def note(self, value: Value, function: str = "", layer: str = "", *, named: bool = False) -> None:
        """Note the block that made new tensors, and the parameters behind them, in the order of blocks.

        The order names parameters and cells, so it must not depend on what was compiled before; the numbers
        of interned nodes do.
        """
        if self.inferring:
            return
        origin = Origin(tuple(map(str, self._path)), function, layer, named)
        stack = [leaf for leaf in leaves(value) if isinstance(leaf, Node)][::-1]
        while stack:
            node = stack.pop()
            if node not in self._origins:
                self._origins[node] = len(self._origins), origin
                if node.op is PARAMETER:
                    self.parameters[node.attrs["parameter"]] = None
                stack += node.inputs[::-1]

    def read(self, source: Object, type_: TensorType, where: str, declared: str = "") -> Node:
        """Return an object read as a tensor, whose data must fit the narrower dtype `declared`, too."""
        node = input_node(type_, name=text(source.expression))
        self.region.feeds[node] = FeedReading(type_, where, declared, source)
        self.note(node)
        return node

    def element(self, sequence: Sequence, item: Expression) -> Value:
        """Return one element of a sequence, from the expression that holds it."""
        types = run_time_terminals(sequence.element)
        if len(types) == 1:
            slots = [Terminal(item, types[0], sequence.wires[0])]
        else:
            names = [f"{text(item)}_{i}" for i in range(len(types))]
            if names:
                self.add(Assign(self.blame(), tuple(names), item))
            slots = [Terminal(n, t, w) for n, t, w in zip(names, types, sequence.wires, strict=True)]
        return self.unflatten(sequence.element, iter(slots))

    def elements(self, sequence: Sequence) -> Value:
        """Return a sequence's elements as tensors along a ragged axis, in the element's structure."""
        types = run_time_terminals(sequence.element)
        if not types or not all(isinstance(t, TensorType) for t in types):
            fix = "make tensors of its elements first, with Map"
            raise BlockTypeError(self.path, "a sequence of tensors", str(SequenceType(sequence.element)), fix)
        nodes = [
            node for node, (code, _, _, _) in self.region.elements.items() if code == sequence.expression
        ]
        if not nodes:  # a second reader of the sequence must get the same axis
            axis = ragged(text(sequence.expression))
            for i, (type_, wire) in enumerate(zip(types, sequence.wires, strict=True)):
                assert isinstance(type_, TensorType)
                nodes.append(input_node(type_, axis, f"{text(sequence.expression)}.{i}"))
                self.region.elements[nodes[-1]] = (sequence.expression, axis, i, wire)
        remaining = iter(nodes)

        def shape(type_: Type) -> Value:
            """Return the nodes that follow in the structure of a type."""
            match type_:
                case TupleType(items):
                    return tuple(map(shape, items))
                case VoidType():
                    return None
            return next(remaining)

        return shape(sequence.element)

    def flatten(self, *values: Value) -> list[Terminal]:
        """Return the terminals of values: the tensors, objects and sequences in them, one by one.

        A terminal names the variable of the tracing program that holds it. Tensors that no cell computes yet
        are put into a new draft of a cell first.
        """
        parts = [leaf for value in values for leaf in leaves(value)]
        tensors = iter(self.materialise([leaf for leaf in parts if isinstance(leaf, Node)]))
        slots = []
        for leaf in parts:
            match leaf:
                case Node():
                    code, wire = next(tensors)
                    slots.append(Terminal(code, leaf.type, wire))
                case Object():
                    slots.append(Terminal(leaf.expression, ObjectType(), None, leaf.place))
                case Sequence():
                    slots.append(Terminal(leaf.expression, SequenceType(leaf.element), leaf.wires))
        return slots

    def materialise(self, nodes: list[Node], *, sinks: bool = False) -> list[tuple[Expression, Flow]]:
        """Return, for each tensor, the expression of its value number, and its wire.

        With `sinks`, the region's losses and metrics are drafted too; the caller ends the region.
        """
        region = self.region
        for node in nodes:
            refuse_ragged(node, self)
        nodes = [apply("batch", n, axis=CALL) if n.axis is UNBATCHED else n for n in nodes]
        new = [
            n for n in nodes if n not in region.values and not any(n in d.draft.nodes for d in region.drafts)
        ]
        losses = region.losses if sinks else []
        metrics = region.metrics if sinks else []
        if new or losses or metrics:
            self._draft(new, losses, metrics)
            if sinks:
                region.losses, region.metrics = [], []
        tensors = []
        for node in nodes:
            if node in region.values:
                tensors.append(region.values[node])
            else:
                drafted = next(d for d in region.drafts if node in d.draft.nodes)
                tensors.append(drafted.output(node))
        return tensors

    def finish(self, value: Value) -> list[Terminal]:
        """End a region: draft everything not computed yet, and return the terminals of the result."""
        self.flush(value)
        return self.flatten(value)

    def flush(self, *values: Value) -> None:
        """Draft one cell for everything that the region has not computed yet, and for these values."""
        wanted = [*values, *(value for _, value in self.region.collected)]
        self.materialise([x for value in wanted for x in leaves(value) if isinstance(x, Node)], sinks=True)
        self.collect()

    def affect(self) -> None:
        """Note that a visit of the present function does more than yield a result."""
        assert self._function is not None
        self._function.effects = True

    def collect(self) -> None:
        """Append the values that the region has collected to their lists."""
        collected, self.region.collected = self.region.collected, []
        if collected:
            self.affect()
        for target, value in collected:
            slots = self.flatten(value)
            assert isinstance(target.expression, str), "a collection is held by a variable"
            self.add(Append(self.blame(), target.expression, packed(slots)))
            for slot, wire in zip(slots, target.wires, strict=True):
                feed(slot.wires, wire)

    def enter(self) -> None:
        """Prepare for code that may collect and measure more: a nested region, or a called function.

        What the region has collected is put into its lists, and its metrics are marked, so that both
        keep the order of visits.
        """
        self.collect()
        unmarked = [visit for visit in self.region.metrics if visit.mark is None]
        if unmarked:
            mark = Object(name := self.fresh("mark"))
            self.add(Call(self.blame(), name))
            for visit in unmarked:
                visit.mark = mark

    @contextmanager
    def inside(self, levels: int = 1, *, loop: bool = False) -> Iterator[list[Statement]]:
        self.enter()
        with super().inside(levels, loop=loop) as body:
            yield body

    def _draft(self, outputs: list[Node], losses: list[tuple[str, Node]], metrics: list[MetricVisit]) -> None:
        """Draft one cell of the region for tensors, losses and metrics; add the statement that calls it."""
        region = self.region
        draft, variable = Draft(self.path, len(self.drafts)), self.fresh("v")
        wanted = [*outputs, *(n for _, n in losses), *(visit.node for visit in metrics)]
        # A tensor that an earlier cell of the region computes is read from there. A tensor that is equal in
        # all calls is computed again: its node may be older than this block, and so its place among operands,
        # which stand in the order of their nodes, would tell what else the process has built.
        drafted = {
            n: d
            for d in region.drafts
            for n in d.draft.nodes
            if n.axis is CALL and n not in region.feeds and n not in self._equal_in_calls
        }
        stop = {*drafted, *region.values, *region.elements, *region.feeds}
        arguments: list[Expression] = []
        lists: dict[Axis, Expression] = {}
        data: list[FeedReading] = []
        for node in reachable(wanted, stop):
            if node in region.elements:
                code, axis, _, _ = region.elements[node]
                lists[axis] = code
            elif node in region.values or node in drafted:
                value, wire = region.values[node] if node in region.values else drafted[node].output(node)
                draft.operands.append((node, wire))
                arguments.append(value)
            elif node is KEY:
                draft.keys.append(len(draft.feeds))
                data.append(FeedReading(node.type, self.path, "", Object(variable)))
                draft.feeds.append((node, data[-1]))
            elif node in region.feeds:
                data.append(region.feeds[node])
                draft.feeds.append((node, data[-1]))
                draft.nodes.add(node)
            else:
                if node.op is INPUT:
                    actual, fix = "one kept from another", "make it an input, for example with AllOf"
                    raise BlockTypeError(self.path, "tensors that this function is given", actual, fix)
                if all(x.axis is UNBATCHED or x in self._equal_in_calls for x in node.inputs):
                    self._equal_in_calls.add(node)
                draft.nodes.add(node)
        for axis in lists:
            members = [(node, wire) for node, (_, a, _, wire) in region.elements.items() if a is axis]
            draft.sequences.append((axis, members))
        labels = self._draft_metrics(draft, metrics, data)
        draft.losses = list(losses)
        assert self._function is not None
        self._function.effects |= bool(losses or metrics or draft.keys)
        for node in outputs:
            draft.output(node)
        self.drafts.append(draft)
        self.labels.append(labels_of_draft(draft.nodes, self._origins, list(map(str, self._path))))
        region.drafts.append(Drafted(variable, draft))
        elements = tuple(Datum(code, self.blame()) for code in lists.values())
        feeds = tuple(Datum(d.source.expression, self.blame(d.source, where=d.where)) for d in data)
        call = Call(self.blame(), variable, draft, tuple(arguments), elements, feeds, tuple(labels))
        self.add(call)

    def _draft_metrics(
        self, draft: Draft, metrics: list[MetricVisit], data: list[FeedReading]
    ) -> list[Datum]:
        """Add metrics to a draft, and their marks to its feeds and `data`; return their labels."""
        labels = []
        for number, visit in enumerate(metrics):
            if visit.label is not None:
                labels.append(Datum(visit.label.expression, self.blame(visit.label)))
                draft.labels.append(number)
            if visit.mark is not None:
                data.append(FeedReading(MARK, self.path, "", visit.mark))
                draft.marks.append((number, len(draft.feeds)))
                draft.feeds.append((input_node(MARK), data[-1]))
            draft.metrics.append((visit.name, visit.node))
        return labels

    # -- functions

    def collection(self, name: str) -> str:
        """Return the variable that holds the list of a collection; it is empty when a trace begins."""
        return self.collecting.setdefault(name, f"nodes{len(self.collecting)}")

    def calls(self, function: Procedure) -> None:
        """Note that the present function calls a function: in every case, unless a choice or loop is open."""
        assert self._function is not None
        self._function.calls.append(function.name)
        if not self._levels:
            self._function.always.append(function.name)

    def beginning(self, name: str) -> str:
        """Return the beginning of a declaration's paths: its name, numbered if another declaration has it."""
        root = numbered(name, self._roots, first=2) if name in self._roots else name
        self._roots.add(root)
        return root

    def declare(self, key: object, name: str, input_type: Type, output_type: Type) -> Procedure:
        """Add a function to the tracing program, without a body yet, and return it, so that it can be called.

        Args:
            key: the declaration that it stands for.
            name: how errors name it.
            input_type: the type of its argument.
            output_type: the type of its result.
        """
        parameters = [
            Terminal(f"x{i}", t, new_wires(t)) for i, t in enumerate(run_time_terminals(input_type))
        ]
        results = [Terminal(f"r{i}", t, new_wires(t)) for i, t in enumerate(run_time_terminals(output_type))]
        stem = re.sub(r"[^A-Za-z0-9]", "_", name)
        function = Procedure(self.fresh(f"run_{stem}_"), name, input_type, output_type, parameters, results)
        self.declared[key] = function
        self.functions.append(function)
        return function

    @contextmanager
    def define(self, function: Procedure, path: str) -> Iterator[Value]:
        """Build a function's body; yields its argument."""
        saved = self._function, self._regions, self._body, self._levels, self._loops, self._path
        self._function, self._regions, self._body = function, [Region()], []
        self._levels, self._loops, self._path = 0, 0, [path]
        try:
            yield self.unflatten(function.input_type, iter(function.parameters))
            function.body = tuple(self._body)
        finally:
            self._function, self._regions, self._body, self._levels, self._loops, self._path = saved


def packed(slots: PySequence[Terminal]) -> Expression:
    """Return the expression of an element from its terminals: one alone, else a tuple."""
    items = tuple(slot.expression for slot in slots)
    return items[0] if len(items) == 1 else Tuple(items)


def refuse_ragged(node: Node, builder: Builder, block: object = None) -> None:
    """Refuse a tensor of a sequence's elements where one for each call is needed."""
    if node.axis.rank > 1:
        where = builder.path if block is None else builder.where(block)
        actual = f"a {node.type} for every element of a sequence"
        fix = "work on each by Map, or sum over them by ops.segment_sum"
        raise BlockTypeError(where, "one tensor", actual, fix)


# -- labels of cells: the path of the innermost block that all tensors of the cell come from, and then the
# functions that make them, ``tree.node.attend``. Where two would be alike, the names of layers are added. The
# path of the whole model says nothing that the user knows: there the names stand alone, where any were given.

LABEL_PARTS = 2  # names of functions and layers that a label has at most


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a tensor comes from."""

    path: tuple[str, ...]  # the path of the block that makes it, segment by segment
    function: str = ""  # the name of the user's function that makes it; empty of a lambda
    layer: str = ""  # the name of the layer that makes it, else empty
    named: bool = False  # whether the user gave the layer's name


def labels_of(origins: Iterable[Origin], path: PySequence[str]) -> tuple[str, ...]:
    """Return labels for a cell from the origins of its tensors, so that one may be unlike other cells'.

    The shortest comes first. Without origins, the cell's path is the label.

    >>> pair = Origin(("tree", ".node"), layer="pair", named=True)
    >>> labels_of([pair, Origin(("tree", ".node", ".decode"), "attend")], ["tree"])
    ('tree.node.attend', 'tree.node.pair+attend')
    >>> labels_of([Origin(("model",), layer="pair", named=True)], ["model"])
    ('pair', 'model.pair')
    """
    within = [origin for origin in origins if origin.path[:1] == tuple(path[:1])]
    common = _shared([origin.path for origin in within]) if within else path
    functions = [origin.function for origin in within if origin.function]
    layers = [origin.function or origin.layer for origin in within if origin.function or origin.layer]
    words = [x.function or x.layer for x in within if x.function or x.named]
    short = _joined((), words) if words and tuple(common) == (MODEL,) else _joined(common, functions)
    return short, _joined(common, layers)


def labels_of_draft(
    nodes: Iterable[Node], origins: Mapping[Node, tuple[int, Origin]], path: PySequence[str]
) -> tuple[str, ...]:
    """Return labels for a cell: after what it computes, or else after the data that it reads.

    Origins are numbered in the order of blocks.
    """
    candidates = [node for node in nodes if node in origins and node.axis is not UNBATCHED]
    computed = [node for node in candidates if node.op is not INPUT]
    ordered = sorted((origins[node] for node in computed or candidates), key=itemgetter(0))
    return labels_of([origin for _, origin in ordered], path)


def _shared(paths: PySequence[tuple[str, ...]]) -> PySequence[str]:
    return [
        first for first, *_ in takewhile(lambda segments: len(set(segments)) == 1, zip(*paths, strict=False))
    ]


def _joined(path: PySequence[str], names: Iterable[str]) -> str:
    different = list(dict.fromkeys(names))
    if len(different) > LABEL_PARTS:
        different = [different[0], "...", different[-1]]
    return "".join([*path, "." * bool(path and different), "+".join(different)])
