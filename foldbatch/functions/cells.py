"""Cells: functions of tensors, each a static cell for every structure of arguments it is called with.

``@cell`` gives back a plain function. Its code asks whether the arguments have a structure that it knows,
notes the call, and returns values; it is written anew when a structure comes that it does not know.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial, update_wrapper
from itertools import chain
from operator import attrgetter
from threading import get_ident
from types import CodeType, FunctionType
from typing import Any, Final, NoReturn, Protocol

import numpy as np

from foldbatch.errors import FoldbatchError, WalkError, lines_outside
from foldbatch.functions.modules import MethodCell
from foldbatch.functions.specs import (
    ARGUMENT,
    DEEPEST,
    DataSpec,
    ListSpec,
    NestSpec,
    ObjectSpec,
    Spec,
    StaticSpec,
    ValueSpec,
    described,
    form_of,
    forms_in,
    guarded,
    hint_of,
    is_array,
    is_nest,
    leaves,
    opened,
    rebuilt,
    refuse_text,
    row_type,
    spec_of,
    static_spec,
    too_deep,
    typed,
    with_values,
    without_forms,
)
from foldbatch.functions.values import GivenObject, Noted, value_class
from foldbatch.model.columns import PLAIN, as_now, kept
from foldbatch.model.drafts import Draft, Feed, Flow
from foldbatch.model.labels import STRUCTURE, argument_text, label_of, shortened
from foldbatch.model.link import numbered_sites
from foldbatch.operators import OUTSIDE, Recorder, active_recorder, in_function, is_symbolic
from foldbatch.params.parameters import Parameter
from foldbatch.recorder.lists import Kind
from foldbatch.static import ops
from foldbatch.static.cellgraph import CellGraph
from foldbatch.static.graph import CONSTANT, INPUT, PARAMETER, Graph, Node, apply, input_node, lift, reachable
from foldbatch.static.op import CALL, UNBATCHED, ragged
from foldbatch.static.ops.random import KEY
from foldbatch.static.printer import graph_form, print_graph
from foldbatch.system.remembering import code_of
from foldbatch.system.showing import arguments_of
from foldbatch.types import TensorType, describe_value

# the next number of a value, the last one that the present example may take, and the thread that notes, or 0
COUNTERS: Final = array("q", (0, 0, 0))
# What the code of all cells finds among its globals; `notes` binds lists of a run.
GLOBALS: Final[dict[str, Any]] = {"COUNTERS": COUNTERS, "THREAD": get_ident}
numbers = itertools.count()
# the most signatures which differ in forms of arrays alone that code checks one by one; more are in a table
FEW_FORMS: Final = 8


@dataclass(slots=True)
class SharedName:
    """The name, among the globals of cells' code, of a value that the code of several cells may need."""

    name: str
    cells: int = 0  # how many cells have code with it; with the last one, the name goes


_shared_names: dict[object, SharedName] = {}  # by `typed` value


def _release(keys: Iterable[object]) -> None:
    """Let go of the names of values that the code of a cell had, by `typed` values."""
    for key in keys:
        shared = _shared_names[key]
        shared.cells -= 1
        if not shared.cells:
            del _shared_names[key]
            del GLOBALS[shared.name]


@dataclass(slots=True)
class Body:
    """Losses, metrics and labelled data that a cell's function adds beside its result, as nodes."""

    losses: list[tuple[str, Node]] = field(default_factory=list)
    metrics: list[tuple[str, Node, GivenObject | None]] = field(default_factory=list)
    data: dict[Node, GivenObject] = field(default_factory=dict)  # numbers that it is given, as labels


def _forget(names: Sequence[str]) -> None:
    for name in names:
        GLOBALS.pop(name, None)


_bodies: list[Body] = []


def body() -> Body | None:
    """Return the body of the cell's function that runs now, if any."""
    return _bodies[-1] if _bodies else None


class Stale(Exception):  # noqa: N818 - it is no error
    """A call has a structure that is known from a model which has changed since: the cell is read anew."""


GLOBALS["STALE"] = Stale


class InForce:
    """The signatures that calls are of: after changes of a model, new ones stand in the place of old ones."""

    changes: int = 0  # how often signatures have given way to others of the same structures
    runs: int = 0  # how many runs there were
    # those that were made in the present run, by functions that read the model as it is
    fresh: set[Signature] = set()  # noqa: RUF012


@dataclass(frozen=True, slots=True)
class Symbols:
    """The symbolic arguments that a cell's function is run on, for one structure."""

    operands: list[tuple[str, Node]]  # values: their paths, and inputs of the graph
    # lists: path, axis, and per member its path in an element, and input
    sequences: list[tuple[str, Any, list[tuple[str, Node]]]]
    feeds: list[tuple[str, Node, Feed]]  # data: path, input and description
    objects: list[str]  # paths of the arguments that can be labels
    data: dict[Node, GivenObject]  # numbers that it is given, which can be labels, too
    parts: dict[str, list[object]]  # by argument, the symbols at its leaves

    @property
    def inputs(self) -> list[Node]:
        """All inputs of the graph."""
        members = [node for _, _, pairs in self.sequences for _, node in pairs]
        return [*(node for _, node in self.operands), *(node for _, node, _ in self.feeds), *members]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a cell's function on symbolic arguments, with its losses, metrics and labels."""

    result: Spec  # the structure of the result
    leaves: list[int | str]  # per leaf of it the number of an output, or the path of an operand
    outputs: list[Node]
    losses: list[tuple[str, Node]]
    metrics: list[tuple[str, Node]]
    labels: list[int | None]  # per metric, the number of the object that is its label

    @property
    def ends(self) -> list[Node]:
        """All nodes that it yields."""
        return [*self.outputs, *(node for _, node in self.losses), *(node for _, node in self.metrics)]

    @property
    def frame(self) -> tuple[object, ...]:
        """All of it but the nodes."""
        names = [name for name, _ in self.losses], [name for name, _ in self.metrics]
        return self.result, self.leaves, len(self.outputs), names, self.labels

    def equals(self, peer: Outcome, inputs: Sequence[Node]) -> bool:
        """Whether another run of a function on the same symbols, which are `inputs`, computes the same."""
        if self.frame != peer.frame:
            return False
        pairs = zip(numbered_sites(self.ends, inputs), numbered_sites(peer.ends, inputs), strict=True)
        return all(x is y for x, y in pairs)


@dataclass(eq=False)
class Signature:
    """A cell for one structure of arguments: its graph, and the row, elements, data and labels of a call."""

    name: str  # of the cell
    order: tuple[str, int]  # sorts cells that are alike in all that a model shows of them
    number: int  # its own, in the process
    specs: dict[str, Spec]  # the structures of arguments, by name
    operands: list[tuple[str, Node]]  # the values that it reads: their paths, inputs of the graph
    # the lists that it reads: path, axis, and per member its path in an element, and input
    sequences: list[tuple[str, Any, list[tuple[str, Node]]]]
    # the data that it reads: path, input and description; without a path, numbers of calls
    feeds: list[tuple[str, Node, Feed]]
    labels: list[str]  # per metric with a label, the path of the label
    outputs: list[Node]  # its results as nodes of the graph, those that are no operands
    result: Spec  # the structure of the result; per leaf the number of an output, or the path of an operand
    leaves: list[int | str]
    draft: Draft  # the cell as it goes to the linker, without wires
    cell: Any = None  # the `CellFunction` that it belongs to, or a block's `BlockCell`
    spare: Any = None  # lists for its calls that no run has; `notes` makes them
    coded: Any = None  # its description for compiled code, where that does its calls: `coded` makes it
    # the functions that its code finds before its first call in a run, by name
    unbound: dict[str, Callable[[Any], None]] | None = None
    # the arguments of the run of its function, the outcome, and the types of annotations then
    symbols: Symbols | None = None
    outcome: Outcome | None = None
    hints: dict[str, object] | None = None

    def __post_init__(self) -> None:
        weakref.finalize(self, _forget, [*self.names]).atexit = False

    @cached_property
    def names(self) -> dict[str, tuple[Kind, int]]:
        """Names of the appenders in the cell's code, each with kind and number; rows, ``R``, come first."""
        sizes: dict[Kind, int] = {"E": len(self.sequences), "F": len(self.feeds), "L": len(self.labels)}
        names: dict[str, tuple[Kind, int]] = {f"R{self.number}": ("R", 0)}
        for kind, size in sizes.items():
            names |= {f"{kind}{self.number}_{i}": (kind, i) for i in range(size)}
        return names

    @property
    def inputs(self) -> list[Node]:
        """All nodes that it reads: values, data, members of lists."""
        members = [n for _, _, pairs in self.sequences for _, n in pairs]
        return [*(n for _, n in self.operands), *(n for _, n, _ in self.feeds), *members]

    @property
    def ends(self) -> list[Node]:
        """All nodes that it yields: outputs, losses, metrics."""
        return [*self.outputs, *(n for _, n in self.draft.losses), *(n for _, n in self.draft.metrics)]

    @cached_property
    def bounds(self) -> list[int | None]:
        """Per feed, the number that ids must be below, or None."""
        limits = CellGraph(self.name, (), tuple(self.inputs), tuple(self.ends)).bounds
        return [limits.get(node) for _, node, _ in self.feeds]

    @cached_property
    def digest(self) -> str:
        """A text that tells signatures of one name apart, whatever the order in which they were found."""
        graph = Graph(tuple(self.inputs), tuple(self.ends))
        constants = sorted(n.attrs["value"].tobytes() for n in graph.nodes if n.op is CONSTANT)
        return repr(
            (
                self.structures,
                print_graph(graph),
                constants,
                self.leaves,
                self.draft.losses and "",
                self.labels,
            )
        )

    @cached_property
    def keywords(self) -> list[str]:
        """The keyword-only arguments that differ from their defaults, as in ``op=xor``, for the title."""
        if not isinstance(self.cell, CellFunction):
            return []
        defaults = {name: StaticSpec(p.default) for name, p in self.cell.signature.parameters.items()}
        statics = [(name, self.specs[name]) for name in self.cell.static]
        return [
            f"{name}={argument_text(spec.value)}"  # type: ignore[union-attr]
            for name, spec in statics
            if spec != defaults[name]
        ]

    @property
    def title(self) -> str:
        """The name, with the keyword-only arguments that are not the default: ``gate(op=xor)``."""
        return label_of(self.name, self.keywords)

    @cached_property
    def structures(self) -> dict[str, str]:
        """The structures of arguments in words, by name."""
        return {name: described(spec) for name, spec in self.specs.items()}

    def title_with(self, names: Iterable[str]) -> str:
        """Return the title with the structures of some arguments, for cells that differ in these alone."""
        # arguments of ops and layers have no names that the user knows
        is_own = isinstance(self.cell, CellFunction) and self.cell.is_decorated
        texts = [
            f"{name}: " * is_own + shortened(self.structures[name], STRUCTURE)
            for name in names
            if name in self.structures
        ]
        return label_of(self.name, [*self.keywords, *texts])

    @cached_property
    def computed(self) -> str:
        """A digest of its computation, for files."""
        form = graph_form(Graph(tuple(self.inputs), tuple(numbered_sites(self.ends, self.inputs))))
        names = [name for name, _ in (*self.draft.losses, *self.draft.metrics)]
        text = repr((form, self.leaves, names, self.draft.labels))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @property
    def heading(self) -> str:
        """The call in a line: ``leaf(word: int32) -> (float32[8], float32[8])``."""
        arguments = ", ".join(f"{name}: {text}" for name, text in self.structures.items())
        return f"{self.name}({arguments}) -> {described(self.result)}"

    @property
    def key(self) -> tuple[object, ...]:
        """A key that sorts signatures, whatever the order in which they were found."""
        return self.name, self.digest, [(p.order[:2], p.name) for p in self.parameters], self.order

    @cached_property
    def width(self) -> int:
        """How many numbers a call takes."""
        return max(len(self.outputs), 1)

    @cached_property
    def arguments(self) -> int:
        """How many numbers stand in the row of a call: its own, those it reads, and lengths of lists."""
        return 1 + len(self.operands) + len(self.sequences)

    @property
    def structure(self) -> tuple[Spec, ...]:
        """The structures of all arguments, by which its cell knows it."""
        return tuple(self.specs.values())

    @cached_property
    def silent(self) -> bool:
        """Whether a call of it computes nothing."""
        return not (self.outputs or self.draft.losses or self.draft.metrics)

    @cached_property
    def parameters(self) -> list[Parameter]:
        """The parameters, in the order in which the function uses them."""
        parameters, seen = list[Parameter](), set[Node]()
        stack = self.ends[::-1]
        while stack:
            node = stack.pop()
            if node not in seen:
                seen.add(node)
                if node.op is PARAMETER:
                    parameters.append(node.attrs["parameter"])
                stack += node.inputs[::-1]
        return parameters

    def drafted(self, number: int, name: str) -> Draft:
        """Return a copy of the draft, renamed and without wires, to be linked with drafts of other cells."""
        draft, flow = self.draft, Flow
        return Draft(
            name,
            number,
            operands=[(node, flow()) for _, node in self.operands],
            sequences=[
                (axis, [(node, flow()) for _, node in members]) for _, axis, members in self.sequences
            ],
            feeds=list(draft.feeds),
            outputs={node: flow() for node in self.outputs},
            losses=list(draft.losses),
            metrics=list(draft.metrics),
            labels=list(draft.labels),
            marks=list(draft.marks),
            keys=list(draft.keys),
            nodes=draft.nodes,
            behind=draft.behind,
        )

    def lines(self, otherwise: str) -> Iterator[str]:
        """Yield the code of a call whose arguments have this structure; `otherwise` for other elements."""
        return where_fits(self.cell, self.specs, lambda names: self._noting(otherwise, names))

    @cached_property
    def shapeless(self) -> dict[str, Spec]:
        """The structures of arguments, by name, with neither shapes nor dtypes of arrays."""
        return {name: without_forms(spec) for name, spec in self.specs.items()}

    @cached_property
    def outline(self) -> tuple[Spec, ...] | None:
        """The specs that signatures of other array forms share; None if no argument holds an array."""
        return tuple(self.shapeless.values()) if forms_in(self.specs) else None

    def _noting(self, otherwise: str, names: dict[str, str]) -> Iterator[str]:
        """Yield the lines of code that append a call's row, elements, data and labels, and return its result.

        `otherwise` is the statement for calls of another structure, `names` has the variables of paths.
        """

        def code(path: str) -> str:
            return names.get(path, ARGUMENT + path)

        k, name_of = self.number, self.cell.name_of
        if self.silent:
            yield from (f"try: R{k}(())", "except STALE: pass", f"else: return {self._result({}, code)}")
            return
        for i, (path, _, members) in enumerate(self.sequences):
            inner = [f"x{member}.n" for member, _ in members]
            element_code = f"{inner[0]} for x in {ARGUMENT}{path}"
            if len(inner) > 1:
                element_code = f"n for x in {ARGUMENT}{path} for n in ({', '.join(inner)})"
            yield from (f"try: e{i} = [{element_code}]", f"except Exception: {otherwise}")
        argument_leaves = [(name + path, x) for name, spec in self.specs.items() for path, x in leaves(spec)]
        changing = {path for path, x in argument_leaves if isinstance(x, DataSpec) and x.changing}
        data = ["v" if not path else code(path) for path, _, _ in self.feeds]
        for i, (path, node, _) in enumerate(self.feeds):
            if path in changing:
                plain = f"type({data[i]}) in {name_of(PLAIN)}"
                now = f"{name_of(as_now)}({data[i]}, {len(node.type.shape)})"
                yield f"d{i} = {data[i]} if {plain} else {now}"
                data[i] = f"d{i}"
        row = [
            "v",
            *(f"{code(path)}.n" for path, _ in self.operands),
            *(f"len({ARGUMENT}{path})" for path, _, _ in self.sequences),
        ]
        yield f"if THREAD() != COUNTERS[2]: NOWHERE({self.name!r})"
        yield "v = COUNTERS[0]"
        yield "if v > COUNTERS[1]: STOP(v)"
        noted = [f"R{k}(({', '.join(row)},))", *[f"E{k}_{i}(e{i})" for i in range(len(self.sequences))]]
        noted += [f"F{k}_{i}({datum})" for i, datum in enumerate(data)]
        numbers = {name for name, x in argument_leaves if isinstance(x, DataSpec)}
        for i, path in enumerate(self.labels):
            noted.append(f"L{k}_{i}({f'{name_of(kept)}({code(path)})' if path in numbers else code(path)})")
        # the number moves last, so that calls in the midst of another have one twice, which is noticed
        yield f"try: {'; '.join(noted)}; COUNTERS[0] = v + {self.width}"
        paths = [path for path, _ in self.operands] + [path for path, _, _ in self.sequences]
        read = "".join(f"{code(path)}, " for path in paths)
        yield "except STALE: pass"  # the call goes on below, and is of a new signature
        yield f"except BaseException: UNDO({k}, v, {self.name!r}, ({read})); raise"
        yield "else:"
        output_codes = {}
        for j, node in enumerate(self.outputs):
            output_codes[j] = f"{name_of(value_class(node.type))}(v{f' + {j}' if j else ''})"
            if self.leaves.count(j) > 1:  # one object wherever it stands
                yield f"    o{j} = {output_codes[j]}"
                output_codes[j] = f"o{j}"
        yield f"    return {self._result(output_codes, code)}"

    def _result(self, output_codes: dict[int, str], code: Callable[[str], str]) -> str:
        """Return the code of a call's result, given the code of each output and of each path."""
        codes = iter(
            [output_codes[x] if isinstance(x, int) else x if x == "None" else code(x) for x in self.leaves]
        )

        name_of = self.cell.name_of

        def text(spec: Spec) -> str:
            """Return the code of a nest; codes of its leaves are taken in turn."""
            if not isinstance(spec, NestSpec):
                return next(codes)
            items = [text(item) for item in spec.items]
            if spec.kind is tuple:
                return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
            if spec.kind is dict:
                return (
                    "{" + ", ".join(f"{name_of(k)}: {x}" for k, x in zip(spec.keys, items, strict=True)) + "}"
                )
            return f"{name_of(spec.kind)}({', '.join(items)})"

        return text(self.result)


def where_fits(
    cell: CellFunction, specs: Mapping[str, Spec], body: Callable[[dict[str, str]], Iterator[str]]
) -> Iterator[str]:
    """Yield code of a cell that runs a body where arguments have a structure.

    The body is given names of items by path.
    """
    outer, opening, inner, names = guarded(specs, cell.name_of)
    yield f"if {' and '.join(outer) or 'True'}:"
    if opening:
        yield f"    try: {'; '.join(opening)}"
        yield "    except ValueError: pass"
        yield "    else:"
        yield f"        if {' and '.join(inner) or 'True'}:"
    yield from ["    " * (3 if opening else 1) + line for line in body(names)]


def _looked_up(
    of: Signature, table: FormTable, passed: Sequence[str], names: dict[str, str]
) -> Iterator[str]:
    """Yield the code of a call that a table does, where it has the forms of the arrays of arguments."""
    forms = [f"{of.cell.name_of(form_of)}({names.get(path, ARGUMENT + path)})" for path in forms_in(of.specs)]
    yield f"variant = {table.name}(({', '.join(forms)},))"
    yield f"if variant is not None: return variant({', '.join(passed)})"


@dataclass(frozen=True, slots=True)
class FormTable:
    """The functions that do calls of a cell, by shapes and dtypes of the arrays among its arguments."""

    name: str  # among the globals of cells' code, where that finds the look-up
    calls: dict[Any, Callable[..., object]] = field(default_factory=dict)


class CellFunction:
    """A user's function of tensors, and its signatures.

    `order` sorts cells that are alike; by default, it is the order in which they were made.
    """

    def __init__(
        self, function: Callable[..., object], name: str, order: tuple[str, int] | None = None
    ) -> None:
        self.function, self.name = function, name
        self.order = ("", next(numbers)) if order is None else order
        self.signatures: list[Signature] = []  # those that were found
        self._by_structure: dict[tuple[Spec, ...], Signature] = {}  # these by structure
        self._codes: dict[bool, CodeType] = {}  # of `call`, fast and not
        # by static arguments, where there are any: signatures, and the functions that do their calls
        self._groups: dict[object, list[Signature]] = {}
        self._variants: dict[object, Callable[..., object]] = {}
        # of signatures that differ in forms of arrays alone, where there are many: by what they have in
        # common
        self._tables: dict[object, FormTable] = {}
        # of a method, and of a cell that the user has not decorated: the kind, and the parts that it was
        # made of
        self.origin: tuple[Any, ...] | None = None
        self.signature = arguments_of(function)
        kinds = {parameter.kind for parameter in self.signature.parameters.values()}
        if {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD} & kinds:
            fix = "name each argument; any number of values is a list: def node(children)"
            raise WalkError(name, "a function with named arguments", f"{name}{self.signature}", fix)
        keyword = inspect.Parameter.KEYWORD_ONLY
        self.static = [n for n, p in self.signature.parameters.items() if p.kind is keyword]
        self.parameters = list(self.signature.parameters)
        number = next(numbers)
        self.slow, self.variants, self.fast = f"S{number}", f"T{number}", f"C{number}"
        GLOBALS[self.slow] = partial(_slow, weakref.ref(self))
        GLOBALS[self.variants] = self._variants.get
        self._globals = [self.slow, self.variants, self.fast]  # and names of tables
        weakref.finalize(self, _forget, self._globals)
        self._shared = set[object]()  # the values that its code has names of, as `typed` says them
        weakref.finalize(self, _release, self._shared).atexit = False
        # the function that stands for it in walks
        self.call: FunctionType = FunctionType(_code("def f(): pass"), GLOBALS, name)
        self.write()
        update_wrapper(self.call, function)
        defaults = {n: p.default for n, p in self.signature.parameters.items() if p.default is not p.empty}
        self.call.__defaults__ = tuple([x for n, x in defaults.items() if n not in self.static])
        self.call.__kwdefaults__ = {n: x for n, x in defaults.items() if n in self.static}
        self.call.__annotations__ = {}
        self.call.__dict__["cell"] = self  # lives as long as its function
        _cells.add(self)

    def name_of(self, value: object) -> str:
        """Return the name of a value in the cell's code, which lasts as long as the cell.

        A release of the same name in between, by another cell that is gone, takes nothing away.
        """
        key = typed(value)
        shared = _shared_names.get(key)
        if shared is None:
            shared = SharedName(f"K{next(numbers)}")
        if key not in self._shared:
            shared.cells += 1
            self._shared.add(key)
        _shared_names[key] = shared
        GLOBALS[shared.name] = value
        return shared.name

    @property
    def hints(self) -> dict[str, object]:
        """The types of annotations now, by argument; texts may have names that are defined after the cell."""
        names = getattr(inspect.unwrap(self.function), "__globals__", {})
        return {n: hint_of(p.annotation, names) for n, p in arguments_of(self.function).parameters.items()}

    def forget(self, count: int) -> None:
        """Keep the first signatures alone."""
        if len(self.signatures) > count:
            InForce.changes += 1
            self.renew(self.signatures[:count])

    @property
    def subject(self) -> object:
        """The cell itself, as the thing that the user wrote."""
        return self

    @property
    def read(self) -> object:
        """The function, or the layer that is called: the thing whose readings besides arguments count."""
        return self.origin[1] if self.origin is not None and self.origin[0] == "layer" else self.function

    @property
    def parts(self) -> list[object]:
        """The objects by which a walk calls it: its function, the owner of the method, the layer."""
        return [self.call, getattr(self.function, "__self__", None), self.read]

    @property
    def is_pure(self) -> bool:
        """Whether it reads nothing that can change: it is an op with its options, a datum, or a loss."""
        return self.origin is not None and self.origin[0] in ("op", "tensor", "aside")

    def is_current(self, signature: Signature) -> bool:
        """Whether the cell's function would make the same signature now.

        It is run again on the earlier symbols, on which equal expressions are the same nodes. A function with
        two outcomes in a row draws numbers or makes layers itself, once for each structure: of its outcomes
        the ops alone are compared.
        """
        if self.is_pure:
            return True
        if self.hints != signature.hints:
            return False
        symbols, before = signature.symbols, signature.outcome
        assert symbols is not None
        assert before is not None
        try:
            now = _outcome(self, signature.specs, symbols)
            if now.equals(before, symbols.inputs):
                return True
            if now.equals(_outcome(self, signature.specs, symbols), symbols.inputs):
                return False
        except Exception:  # noqa: BLE001 - raised again by the call that makes a new signature
            return False
        ops_now, ops_before = (
            graph_form(Graph(tuple(symbols.inputs), tuple(outcome.ends)), values=False)
            for outcome in (now, before)
        )
        return now.frame == before.frame and ops_now == ops_before

    def retire(self, signature: Signature) -> None:
        """Let calls of a signature's structure make a new one; programs that know it go on with it."""
        InForce.changes += 1
        self.renew([peer for peer in self.signatures if peer is not signature])

    def has(self, signature: Signature) -> bool:
        """Whether calls of a signature's structure are of it, and not of a later or earlier one."""
        return self._by_structure.get(signature.structure) is signature

    def reinstate(self, signatures: Sequence[Signature]) -> None:
        """Let calls be of signatures that have given way to others of the same structures."""
        InForce.changes += 1
        structures = {signature.structure for signature in signatures}
        remaining = [signature for signature in self.signatures if signature.structure not in structures]
        self.renew(sorted([*remaining, *signatures], key=attrgetter("number")))

    def renew(self, kept: Sequence[Signature]) -> None:
        """Keep some signatures, and write all code anew."""
        for collection in (
            self.signatures,
            self._by_structure,
            self._codes,
            self._groups,
            self._variants,
            self._tables,
        ):
            collection.clear()
        self.write(fast=not Slow.on)
        for signature in kept:
            self._admit(signature)

    def _admit(self, signature: Signature) -> None:
        """Write a new signature into the code that does calls, or into a table of forms of arrays."""
        self.signatures.append(signature)  # first: code that is written below may run after an interrupt
        table = self._tables.get(self._common(signature))
        if table is not None:
            self._enter(table, signature)
        elif not self.static:
            self._codes.pop(True, None)
            self.write(fast=not Slow.on)
        else:
            static = self._static(signature)
            group = [*self._groups.get(static, ()), signature]
            self._variants[static] = self._called_by(self._written(group, among=True), group)
            self._groups[static] = group
        self._by_structure[signature.structure] = signature  # last: until then it is made anew

    def _static(self, signature: Signature) -> object:
        values = [signature.specs[name].value for name in self.static]  # type: ignore[union-attr]
        return tuple(values) if len(values) > 1 else values[0]

    def _common(self, signature: Signature) -> object:
        """Return the common key of signatures that differ in forms of arrays alone."""
        return signature.outline, self._static(signature) if self.static else None

    def _enter(self, table: FormTable, signature: Signature) -> None:
        """Let a table do the calls of a signature, by code of its own, which no other signature changes."""
        forms = tuple(forms_in(signature.specs).values())
        table.calls[forms] = self._called_by(self._written([signature], among=True), [signature])

    def _table(self, signatures: Sequence[Signature]) -> FormTable:
        """Return the table that does the calls of signatures which differ in forms of arrays alone."""
        key = self._common(signatures[0])
        if key not in self._tables:
            table = FormTable(f"{self.variants}_{next(numbers)}")
            for signature in signatures:
                self._enter(table, signature)
            self._globals.append(table.name)
            GLOBALS[table.name] = table.calls.get
            self._tables[key] = table
        return self._tables[key]

    def called(self, signature: Signature, arguments: dict[str, object]) -> Noted:
        """Note a call of a known signature, and return its result."""
        positional = [arguments[n] for n in self.parameters if n not in self.static]
        static = {n: arguments[n] for n in self.static}
        if static and not Slow.on:  # a NaN is not found by value
            return self._variants[self._static(signature)](*positional, *static.values())
        return self.call(*positional, **static)

    @property
    def is_decorated(self) -> bool:
        """Whether it is a function of the user's with `cell`; else it is a loose one."""
        return self.origin is None or self.origin[0] == "method"

    def write(self, *, fast: bool = True) -> None:
        """Give `call` its code; without `fast` every call goes the slow way."""
        if fast not in self._codes:
            code = self._written(() if self.static or not fast else self.signatures, find=fast)
            self._codes[fast] = self._short(code) if fast and not self.static else code
        self.call.__code__ = self._codes[fast]

    def _short(self, code: CodeType) -> CodeType:
        """Return code that calls a compiled function, which leaves other calls to this code; or this code."""
        function = self._called_by(code, self.signatures)
        if isinstance(function, FunctionType):
            return code
        GLOBALS[self.fast], names = function, ", ".join([ARGUMENT + n for n in self.parameters])
        return self._named(_code(f"def f({names}): return {self.fast}({names})"))

    def _called_by(self, code: CodeType, signatures: Sequence[Signature]) -> Callable[..., object]:
        """Return the function that does calls of signatures: a compiled one, or one of this code."""
        function = FunctionType(code, GLOBALS, self.name)
        if Slow.fast is None:
            return function
        inline = [signature for signature in signatures if self._common(signature) not in self._tables]
        return Slow.fast(function, inline)

    def _named(self, code: CodeType) -> CodeType:
        """Return code with the cell's name, and the names of arguments that the user gave."""
        names = [name.removeprefix(ARGUMENT) for name in code.co_varnames[: len(self.parameters)]]
        names += code.co_varnames[len(names) :]
        return code.replace(co_name=self.name, co_qualname=self.name, co_varnames=tuple(names))

    def _written(
        self, signatures: Sequence[Signature], *, among: bool = False, find: bool = False
    ) -> CodeType:
        """Return the code of calls that have these signatures: those of one variant, where `among`.

        Where it is to `find` it, it leaves a call to the variant with its static arguments.
        """
        places = [ARGUMENT + n for n in self.parameters if n not in self.static]
        static = [ARGUMENT + n for n in self.static]
        header = ", ".join([*places, *(["*"] if static and not among else []), *static])
        passed = ", ".join(
            [f"{n}={ARGUMENT}{n}" if n in self.static else ARGUMENT + n for n in self.parameters]
        )
        lines, otherwise = list[str](), f"return {self.slow}({passed})"
        for alike in self._by_outline(signatures):
            if len(alike) <= FEW_FORMS:
                lines += chain.from_iterable(signature.lines(otherwise) for signature in alike)
            else:
                look_up = partial(_looked_up, alike[0], self._table(alike), [*places, *static])
                lines += where_fits(self, alike[0].shapeless, look_up)
        if static and find:
            key = ", ".join(static)
            lines += [f"try: variant = {self.variants}({key if len(static) == 1 else f'({key})'})"]
            lines += ["except TypeError: variant = None"]  # the slow way refuses what cannot be hashed
            lines += [f"if variant is not None: return variant({', '.join([*places, *static])})"]
        lines.append(otherwise)
        return self._named(_code(f"def f({header}):\n" + "\n".join(f"    {line}" for line in lines)))

    def _by_outline(self, signatures: Sequence[Signature]) -> Iterable[list[Signature]]:
        """Group signatures that differ in forms of arrays alone, in the order of their first ones."""
        groups: dict[object, list[Signature]] = {}
        for signature in signatures:
            key = signature if signature.outline is None else self._common(signature)
            groups.setdefault(key, []).append(signature)
        return groups.values()

    def find(self, arguments: dict[str, object]) -> Signature:
        """Return the signature of a call, made if it is new.

        Raises:
            WalkError: when the cell cannot take the arguments.
            FoldbatchError: when its function cannot compute with tensors of these types.
        """
        specs: dict[str, Spec] = {}
        hints = self.hints
        for name in self.parameters:
            where = f"{self.name}({name})"
            if name in self.static:
                specs[name] = static_spec(arguments[name], where)
            else:
                specs[name] = spec_of(arguments[name], where, hints[name])
                refuse_text(specs[name], arguments[name], where)
        return self.of(specs)

    def of(self, specs: dict[str, Spec]) -> Signature:
        """Return the signature of a structure of arguments, made if it is new; errors are those of `find`."""
        key = tuple(specs.values())
        if key not in self._by_structure:
            signature = _new_signature(self, specs)
            signature.cell = self
            Slow.register(signature)  # before there is code that notes its calls
            self._admit(signature)
        return self._by_structure[key]

    def present(self, specs: dict[str, Spec]) -> Signature:
        """Return the signature for a structure of arguments, made again if it is out of date.

        It is if the cell's function would compute something else now. Errors are those of `find`.
        """
        count = len(self.signatures)
        signature = self.of(specs)
        if len(self.signatures) == count and not self.is_current(signature):
            self.retire(signature)
            signature = self.of(specs)
        return signature


class CallRecorder(Recorder, Protocol):
    """The recorder of a walk, as cells know it."""

    def call(self, cell: CellFunction, arguments: dict[str, object], /) -> Noted:
        """Note a call that the cell's code does not know, and return its result."""

    def value(self, parameter: Parameter, /) -> Noted:
        """Return a parameter as a value."""

    def rows(self, array: object, row: TensorType, where: str, /) -> list[Noted]:
        """Return the rows of an array as values of a type; `where` is for errors."""


def elsewhere(name: str) -> NoReturn:
    """Refuse a call of a cell in no walk, or in another thread than that of the walk that runs."""
    raise WalkError(name, "a call of a cell in a walk", "one elsewhere", OUTSIDE)


class Slow:
    """The slow way of calls, whether every call goes it, and the functions that other modules set for it."""

    on: bool = False
    register: Callable[[Signature], None]  # called once with each new signature
    # returns a function that does calls fast, given one that does them, and signatures; set by `go_fast`
    fast: Callable[[Callable[..., Any], Sequence[Signature]], Callable[..., object]] | None = None


_cells: weakref.WeakSet[CellFunction] = weakref.WeakSet()


def all_cells() -> list[CellFunction]:
    return list(_cells)


def go_fast(make: Callable[..., Any]) -> None:
    """Let calls of cells be done by the functions that `make` returns, from now on."""
    Slow.fast = make
    for cell in all_cells():
        cell.renew([*cell.signatures])


def go_slow(*, on: bool) -> None:
    """Let all calls of cells go the slow way, or no more."""
    if Slow.on != on:
        Slow.on = on
        for cell in all_cells():
            cell.write(fast=not on)


def _code(text: str) -> CodeType:
    scope: dict[str, Any] = {}
    exec(code_of(text, "<foldbatch cell>"), scope)  # noqa: S102 - the text is our own
    code: CodeType = scope["f"].__code__
    return code


def _slow(cell_ref: weakref.ref[CellFunction], *args: object, **options: object) -> object:
    """Do a call that the code of a cell does not know: of another structure, in another cell, or nowhere."""
    self = cell_ref()
    assert self is not None, "the code of a cell runs without it"
    if is_symbolic():
        return self.function(*args, **options)
    bound = self.signature.bind(*args, **options)
    bound.apply_defaults()
    recorder: CallRecorder | None = active_recorder()
    if recorder is None:
        elsewhere(self.name)
    for name, argument in bound.arguments.items():
        if name in self.static:
            continue
        x = with_values(argument, recorder.value)
        if (row := row_type(self.hints[name])) is not None and is_array(x):
            x = recorder.rows(x, row, f"{self.name}({name})")
        if x is not argument:
            return self.call(**bound.arguments | {name: x})
    return recorder.call(self, bound.arguments)


def _new_signature(self: CellFunction, specs: dict[str, Spec]) -> Signature:
    """Run a cell's function on symbolic tensors, and return the signature of these structures."""
    symbols = _symbols(self, specs)
    return _signature(self, specs, symbols, _outcome(self, specs, symbols))


def _symbols(self: CellFunction, specs: dict[str, Spec]) -> Symbols:
    """Return the symbolic arguments of a cell, given their structures: an input per value, datum and member.

    The cell's function is then called with them, to record its graph.
    """
    symbols = Symbols([], [], [], [], {}, {})
    for name, spec in specs.items():
        parts: list[object] = []
        for path, leaf in leaves(spec):
            where = name + path
            match leaf:
                case ValueSpec(type_):
                    symbols.operands.append((where, input_node(type_, name=where)))
                    parts.append(symbols.operands[-1][1])
                case DataSpec(type_):
                    node = input_node(type_, name=where)
                    declared = type_.dtype if type_.dtype.startswith(("int", "uint")) else ""
                    symbols.feeds.append((where, node, Feed(type_, f"{self.name}({where})", declared)))
                    symbols.data[node] = GivenObject(len(symbols.objects), f"{self.name}({where})")
                    symbols.objects.append(where)
                    parts.append(node)
                case ListSpec(element):
                    if element is None:
                        parts.append(())  # what some layers take for no children
                        continue
                    axis = ragged(where)
                    members = [(inner, input_node(t, axis, where + inner)) for inner, t in leaf.members]
                    symbols.sequences.append((where, axis, members))
                    parts.append(rebuilt(element, iter([node for _, node in members])))
                case ObjectSpec():
                    parts.append(GivenObject(len(symbols.objects), f"{self.name}({where})"))
                    symbols.objects.append(where)
                case _:
                    parts.append(None)
        symbols.parts[name] = parts
    return symbols


def _outcome(self: CellFunction, specs: dict[str, Spec], symbols: Symbols) -> Outcome:
    """Run a cell's function on symbols; each run has nests of its own, which it may write to."""
    arguments = {name: rebuilt(spec, iter(symbols.parts[name])) for name, spec in specs.items()}
    cell_body = Body(data=symbols.data)
    result = _run(self, specs, arguments, cell_body)
    outputs, result_leaves, nest = _taken(self, result, {node: path for path, node in symbols.operands})
    losses = [(name, ops.batched(node)) for name, node in cell_body.losses]
    metrics = [(name, ops.batched(node)) for name, node, _ in cell_body.metrics]
    labels = [None if label is None else label.number for _, _, label in cell_body.metrics]
    return Outcome(nest, result_leaves, outputs, losses, metrics, labels)


def _run(self: CellFunction, specs: dict[str, Spec], arguments: dict[str, object], cell_body: Body) -> Noted:
    """Call a cell's function on symbolic arguments and return its result; losses go to `cell_body`.

    Errors leave with a note of the cell and the structures of its arguments.
    """
    _bodies.append(cell_body)
    try:
        with in_function():
            positional = [arguments[n] for n in self.parameters if n not in self.static]
            return self.function(*positional, **{n: arguments[n] for n in self.static})
    except Exception as error:
        raised = _cause_in_ours(error)
        ours = isinstance(raised, FoldbatchError)
        empty = [n for n, spec in specs.items() if any(leaf == ListSpec(None) for _, leaf in leaves(spec))]
        if empty and ours:
            fix = f"say what its elements are: def {self.name}({empty[0]}: list['float32[64]'])"
            where = f"{self.name}({empty[0]})"
            raise WalkError(where, "a list whose elements are known", "an empty one", fix) from error
        note = ", ".join(f"{name}: {described(spec)}" for name, spec in specs.items()) or "nothing"
        int_arguments = [
            n for n, spec in specs.items() if type(spec) is DataSpec and spec.type.dtype == "int32"
        ]
        note += "".join(
            f"; the annotation {n}: 'float32' takes ints as floats" for n in int_arguments[:1] if ours
        )
        note = f"in the cell {self.name}, called with {note}"
        raised.add_note(note if ours else f"{note}: symbols and no numbers")
        if raised is error:
            raise
        raise raised.with_traceback(error.__traceback__) from None
    finally:
        _bodies.pop()


def _cause_in_ours(error: Exception) -> Exception:
    """Return our error that NumPy made another error of, as when it fills an array; else the error itself.

    No line of the user's has seen ours then, so the user has not chosen the other one.
    """
    cause = error.__cause__
    if isinstance(error, FoldbatchError) or not isinstance(cause, FoldbatchError) or lines_outside(cause):
        return error
    return cause


def _taken(
    self: CellFunction, result: object, path_of: Mapping[Node, str]
) -> tuple[list[Node], list[int | str], Spec]:
    """Return the outputs of a result, the number of an output or a path for each leaf, and its structure."""
    outputs: list[Node] = []
    result_leaves: list[int | str] = []

    def taken(x: object, levels: int = DEEPEST) -> Spec:
        """Return the structure of a part of the result; add its leaves and new outputs."""
        if not levels:
            raise too_deep(self.name)
        x = tuple(x) if isinstance(x, list) else x
        if is_nest(x):
            keys, items = opened(x)
            parts = tuple([taken(item, levels - 1) for item in items])
            return NestSpec(dict if isinstance(x, dict) else type(x), keys, parts)
        if x is None:
            result_leaves.append("None")
            return StaticSpec(None)
        if isinstance(x, Parameter | np.ndarray | np.generic):
            operand: Any = x
            x = lift(self.name, (operand,))[0]
        if not isinstance(x, Node):
            fix = "return tensors, or tuples, dicts or dataclasses of them"
            raise WalkError(self.name, "tensors as result", describe_value(x), fix)
        if x in path_of:
            result_leaves.append(path_of[x])
            return ValueSpec(x.type)
        if x.axis.rank > 1:
            fix = "sum over the elements with ops.segment_sum, or call a cell for each element"
            raise WalkError(self.name, "one tensor a call", f"a {x.type} for every element of a list", fix)
        node = apply("batch", x, axis=CALL) if x.axis is UNBATCHED else x
        if node not in outputs:
            outputs.append(node)
        result_leaves.append(outputs.index(node))
        return ValueSpec(node.type)

    nest = taken(result)
    return outputs, result_leaves, nest


def _signature(self: CellFunction, specs: dict[str, Spec], symbols: Symbols, outcome: Outcome) -> Signature:
    """Return the signature of a cell, given its symbols and the outcome of its function on them.

    Inputs that no output, loss or metric reads are left out of the draft.
    """
    inputs = {*symbols.inputs}
    read = {*reachable(outcome.ends, inputs)}
    if any(node.op is INPUT for node in read - inputs - {KEY}):
        fix = "give it as an argument"
        raise WalkError(self.name, "tensors that this cell is given", "one kept from another cell", fix)
    feeds = [(path, node, feed) for path, node, feed in symbols.feeds if node in read]
    draft = Draft(self.name, 0)
    if KEY in read:
        draft.keys = [len(feeds)]
        feeds.append(("", KEY, Feed(KEY.type, self.name, "")))
    draft.feeds = [(node, feed) for _, node, feed in feeds]
    draft.losses, draft.metrics = outcome.losses, outcome.metrics
    labels = [(number, label) for number, label in enumerate(outcome.labels) if label is not None]
    draft.labels = [number for number, _ in labels]
    draft.nodes = {node for node in read if node not in inputs} | {
        node for _, node, _ in feeds if node is not KEY
    }
    return Signature(
        self.name,
        self.order,
        next(numbers),
        specs,
        [(path, node) for path, node in symbols.operands if node in read],
        [s for s in symbols.sequences if any(node in read for _, node in s[2])],
        feeds,
        [symbols.objects[label] for _, label in labels],
        outcome.outputs,
        outcome.result,
        outcome.leaves,
        draft,
        symbols=symbols,
        outcome=outcome,
        hints=self.hints,
    )


def cell(function: Callable[..., object]) -> Any:
    """Make a function of tensors a static cell, one for each structure of arguments.

    In a plain Python function that is given to `foldbatch.compile` (a *walk*) a call of it is noted, and
    yields values; all its calls in a batch run together. In another cell it is an ordinary call.

    The function is run once for each structure, on symbolic tensors. Arguments may be values, numbers and
    arrays of the example, None, tuples, dicts and dataclasses of these, and lists of values. A list may have
    any length: in the function, its elements lie along a ragged axis, for `ops.segment_sum` and the layers
    that take sequences. Keyword-only arguments are static: each value of them makes a cell of its own.
    Numbers and other objects may be labels of metrics. An annotation says what a number is read as
    (``price: "float32"``), or what the elements of a list are that may be empty
    (``children: list["float32[64]"]``); an array of any length is then a list of its rows. Methods of a
    `Module` can be cells, too.

    Args:
        function: takes and returns tensors, with `foldbatch.ops`, operators and layers.

    Raises:
        WalkError: when the function takes any number of arguments; at a call, when the cell cannot take what
            it is given, or no walk runs.

    >>> @fb.cell
    ... def halved(x, y: "float32"):
    ...     return x * 0.5 + y
    >>> program = fb.compile(lambda numbers: [halved(fb.tensor(x), 1) for x in numbers], "numpy")
    >>> [[float(y) for y in ys] for ys in program.run([[1.0, 2.0], [], [4.0]])]
    [[1.5, 2.0], [], [3.0]]
    """
    parameters = list(arguments_of(function).parameters)
    if parameters[:1] == ["self"]:
        return MethodCell(function, CellFunction)
    return CellFunction(function, getattr(function, "__name__", "cell")).call
