"""Lowering: from a block to a model, and a tracer that turns examples into traces for it.

``block --build--> drafts, tracing program --link--> Model``

Data are only collected while the tracing program runs, and checked afterwards by columns. When anything
fails, the examples are traced again one by one, with every datum checked when it is read, and the error names
the block, the example and the place in it.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from types import CodeType
from typing import Any, ClassVar, TypeAlias, TypeVar

from foldbatch.blocks.builder import MODEL, Builder
from foldbatch.blocks.building import Buildable, build
from foldbatch.blocks.drafts import (
    Kinds,
    Procedure,
    Terminal,
    decide_memos,
    new_wires,
    run_time_terminals,
    type_of,
)
from foldbatch.blocks.flow import make_return
from foldbatch.blocks.interrupts import interrupted, is_accident
from foldbatch.blocks.printing import (
    DEEPER,
    ITEMS,
    KIDS,
    KINDS,
    TOOLS,
    TREE,
    ProgramText,
    calls_of,
    program_text,
)
from foldbatch.blocks.purity import direct, is_pure
from foldbatch.blocks.recorder import Recorder, TooManyCallsError
from foldbatch.blocks.tracer import (
    FILENAME,
    NO_TREE,
    Descent,
    Located,
    depth_left,
    paths_of,
    place_of,
    unlocated,
)
from foldbatch.blocks.tracing import (
    GONE,
    Apply,
    Assign,
    Body,
    Branch,
    Call,
    CallOutput,
    Expression,
    Invoke,
    InvokeWalk,
    Limit,
    Loop,
    Part,
    Return,
    Statement,
    Tuple,
    changed,
    constants_of,
    names_of,
    statements_of,
)
from foldbatch.errors import BlockTypeError, BlockValueError, ExampleError, ExamplePlace
from foldbatch.loops.closures import can_close
from foldbatch.model.columns import BadDataError, items_of
from foldbatch.model.drafts import ASIDES, Draft, Flow, PrunedDraft, components, needed
from foldbatch.model.labels import tell_apart
from foldbatch.model.link import link, numbered_sites
from foldbatch.model.model import Model, asides_of
from foldbatch.model.reading_paths import ReadingPaths
from foldbatch.model.replacing import Replacements
from foldbatch.model.tracer import MAX_CALLS, Decide, Look, RunSmall, Written
from foldbatch.params.parameters import Parameter
from foldbatch.planning.policies import Policy, levels
from foldbatch.scheduler.levels import longest_chains
from foldbatch.scheduler.record import BatchRecord
from foldbatch.scheduler.trace import Levels, Trace
from foldbatch.static.cellgraph import CellGraph
from foldbatch.static.graph import CONSTANT, PARAMETER, SOURCES, Graph, Node, is_view, reachable
from foldbatch.static.printer import in_order_of_reading, print_graph
from foldbatch.system.comparing import means_same
from foldbatch.system.processes import no_garbage
from foldbatch.system.remembering import code_of
from foldbatch.system.showing import shown
from foldbatch.trees import Tree
from foldbatch.trees.tree import hasten
from foldbatch.trees.tree import linked as linked_nodes
from foldbatch.types import OBJECT, VOID, Type

# Returns a block as plain data, given the names of parameters, and those that stand in the place of others.
Write: TypeAlias = Callable[[Any, Mapping[str, Parameter], Replacements], Written]

R = TypeVar("R")
# The globals of a run, and the lists that it appends to.
Run: TypeAlias = "tuple[dict[str, Any], Recorder]"


@dataclass(frozen=True, eq=False)
class Lowered:
    """A block ready to run: its model, and the tracing program that makes traces of examples.

    It is a `foldbatch.model.tracer.Tracer`. Several threads may trace at once, and a run of the tracing
    program may start other runs: a run has globals of its own, its functions, and the lists that they
    append to. Another one has them after it.
    """

    origin: Buildable
    functions: Sequence[Procedure]  # the functions of the tracing program, the root's first
    model: Model
    policy: Policy
    globals: dict[str, object]  # globals of all runs
    collections: Sequence[str]  # the variables that hold lists of collected values
    memos: Sequence[str]  # the variables that hold memos, which `foldbatch.blocks.drafts` explains
    max_calls: int
    replacements: Replacements  # the parameters that the program has in the place of the block's
    built: Built = field(repr=False)  # the tracing program of the block when it was compiled
    write: Write | None = field(default=None, repr=False)  # writes the block; None where no file is written
    text: ProgramText = field(init=False, repr=False)  # the tracing program as text
    calls: Sequence[Call] = field(init=False, repr=False)  # for each cell, a statement that calls it
    code: CodeType = field(init=False, repr=False)  # the same, compiled, in its fast spelling
    compiled: bool = field(init=False, repr=False)  # whether compiled functions note its calls
    # globals of runs that have ended and the lists that they append to, for other runs
    unused: list[Run] = field(default_factory=list, init=False, repr=False)
    grows: ClassVar[bool] = False
    cells: ClassVar[Sequence[tuple[Hashable, PrunedDraft]]] = ()
    decides: ClassVar[bool] = False

    def __post_init__(self) -> None:
        put = partial(object.__setattr__, self)  # it is frozen
        put("text", program_text(self.functions))
        put("calls", calls_of(self.functions))
        put("code", code_of(program_text(self.functions, fast=True).source, FILENAME))
        put("compiled", can_close())
        if self.compiled:
            hasten()

    @property
    def name(self) -> str:
        return shown(self.origin)

    @property
    def asides(self) -> frozenset[str]:
        return asides_of(self.model)

    @property
    def source(self) -> str:
        return self.text.source

    @property
    def reached(self) -> Iterable[object]:
        return self.globals.values()

    @property
    def runs_functions(self) -> bool:
        return not all(is_pure(value) for value in self.globals.values() if callable(value))

    @property
    def way(self) -> str:
        return "by the program, visit by visit"

    def remarks(self, calls: Sequence[int]) -> Sequence[str]:
        return ()

    def lengths(self, fewest: int) -> tuple[str, str] | None:
        return None

    def lock(self) -> AbstractContextManager[None]:
        return nullcontext()

    def trace_all(
        self,
        examples: Sequence[object],
        numbers: Sequence[int],
        look: Look | None = None,
        decide: Decide | None = None,
        run_small: RunSmall[R] | None = None,
    ) -> list[Trace] | R:
        """Trace examples by the tracing program, in as few records as possible."""
        traces: list[Trace] = []
        with no_garbage():  # long traces make very many numbers, and many of them are many objects
            while len(traces) < len(examples):
                count = len(traces)
                record = self.record(examples[count:], numbers[count:], look, None if count else run_small)
                if not isinstance(record, BatchRecord):
                    return record  # the results that `run_small` returns
                traces += record.traces()
        return traces

    def variant(self, asides: frozenset[str], policy: Policy | None = None) -> Lowered:
        """Return a tracer of the same block, as it was when the program was compiled.

        The block is built anew, as what is not asked for is left out while it is built.

        Raises:
            BlockTypeError: when functions of the block have come to read something else.
        """
        if not alike(self.built, built(self.origin, self.built.asides)):
            expected = "functions that read what they read when the program was compiled"
            actual = "some that read something else by now: a layer, an attribute, a variable was changed"
            fix = "compile the block again, which reads all as it is now; or run once before the change"
            raise BlockTypeError(self.name, expected, actual, fix)
        options = self.max_calls, asides, self.replacements
        return lower(self.origin, policy or self.policy, *options, self.write)

    @property
    def parameters(self) -> Sequence[Parameter]:
        return self.model.parameters

    def place_of(self, example: object, cell: int, call: int) -> str:
        return place_of(self.model, self.read_carefully, example, cell, call)

    def paths_of(self, example: object) -> ReadingPaths:
        return paths_of(self.model, self.read_carefully, self.text.blames, example)

    def debug(self, example: object, begin: Callable[[Parameter], None]) -> object:
        fix = "metrics show values of blocks: AllOf(Identity(), Metric('name')) >> GetItem(0)"
        raise BlockTypeError("Program.debug", "a program of a plain function", "one of blocks", fix)

    def written(self, parameters: Mapping[str, Parameter]) -> Written:
        assert self.write is not None, "a tracer of a single example is not saved"
        return self.write(self.origin, parameters, self.replacements)

    # -- by the tracing program

    @cached_property
    def levels(self) -> Levels:
        return partial(levels, self.policy, self.model.signatures)

    def record(
        self,
        examples: Sequence[object],
        numbers: Sequence[int],
        look: Look | None = None,
        run_small: RunSmall[R] | None = None,
    ) -> BatchRecord | R:
        """Return the record of examples, or of the first ones where there are very many calls.

        Arguments and errors are those of `trace_all`.
        """
        try:
            run = self.unused.pop()
        except IndexError:  # all are in use
            run = self._fresh()
        namespace, recorder = run
        ended = False
        try:
            root, depth = namespace[self.functions[0].name], depth_left()
            for example in examples:
                recorder.begin(namespace)
                if type(example) is Tree:
                    namespace[TREE] = example
                    namespace[KIDS] = linked_nodes(example)[-2]
                recorder.end(root(example, depth))
                if recorder.full:
                    break
            if look is not None:
                look(self.model, recorder.data)
            results = None
            if run_small is not None and recorder.ended == len(examples):
                results = run_small(recorder.small_batch, numbers)
            record = recorder.record(self.levels) if results is None else results
        except Exception as error:
            if interrupted(error):
                raise
            datum = recorder.first_bad()
            place, fault = (recorder.ended, error) if datum is None else (datum.call, datum.error)
            if place == len(examples):  # it is no example's fault
                raise
        else:
            ended = True
            return record
        finally:
            recorder.clear()
            namespace.update(recorder.idle_globals)
            namespace.update(NO_TREE)
            if ended:  # else a thread that ran deep may still find its globals here
                self.unused.append(run)
        raise self._refused(examples[place], numbers[place], fault)  # its context is none of the above

    def _refused(self, example: object, number: int, error: Exception) -> Exception:
        """Return the error for an example that does not fit, or an error that no example caused."""
        if isinstance(error, TooManyCallsError):
            expected = f"at most {self.max_calls:,} calls"
            fix = "raise the option max_calls, or visit shared parts once: ForwardDeclaration(memo=True)"
            return ExampleError(ExamplePlace("model", number), expected, "more", fix)
        lines = self.source.splitlines(keepends=True)
        linecache.cache[FILENAME] = (len(self.source), None, lines, FILENAME)
        try:
            self.read_carefully(example)
        except Located as located:
            return located.error(number)
        except (BadDataError, TooManyCallsError):
            pass
        if is_accident(error, example):
            return error
        refused = unlocated(error, number)
        refused.__cause__ = None if isinstance(error, BadDataError) else error
        return refused

    def read_carefully(
        self, example: object, adapt: Callable[[dict[str, object]], None] = lambda _: None
    ) -> None:
        """Run the tracing program on an example and check each datum as it is read, to find where it fails.

        Nothing is kept of the calls that it notes.

        Args:
            example: the example.
            adapt: changes the globals of the run before it begins.

        Raises:
            Located: when reading fails; it has the place in the example.
            Exception: the error itself, where no place of the program has raised it.
        """
        namespace, recorder = self._fresh(careful=True)
        namespace[ITEMS] = items_of  # items read before are read again
        adapt(namespace)
        recorder.begin(namespace)
        with no_garbage():
            try:
                recorder.end(namespace[self.functions[0].name](example, depth_left()))
            except Exception as error:
                if interrupted(error):
                    raise
                located = Located(self.text.blames, self.functions, namespace, error)
                if not located.frames:
                    raise
                raise located from None

    def _fresh(self, *, careful: bool = False) -> Run:
        """Return globals for runs of the tracing program, and the lists that its functions append to."""
        arguments = self.model, self.collections, self.memos, self.max_calls, self.model.bounds
        recorder = Recorder(*arguments, careful=careful, compiled=self.compiled and not careful)
        namespace = self.globals | TOOLS | NO_TREE | recorder.bindings
        if not careful:
            namespace.update({name: direct(function) for name, function in self.globals.items()})
        namespace[DEEPER] = Descent(self.functions, namespace)
        code = code_of(self.source, FILENAME) if careful else self.code  # errors name what variables hold
        exec(code, namespace)  # noqa: S102 - the text is our own
        if not careful:
            recorder.use_compiled(namespace, self.calls)
        return namespace, recorder


def lower(
    block: Buildable,
    policy: Policy,
    max_calls: int = MAX_CALLS,
    asides: frozenset[str] = ASIDES,
    replacements: Replacements | None = None,
    write: Write | None = None,
) -> Lowered:
    """Build a block whose input is one example, a Python object.

    Where one of `asides` is missing, so is all that serves nothing else.
    """
    return linked(block, built(block, asides), policy, max_calls, replacements, write)


def linked(
    block: Buildable,
    program: Built,
    policy: Policy,
    max_calls: int = MAX_CALLS,
    replacements: Replacements | None = None,
    write: Write | None = None,
) -> Lowered:
    """Link a block that has been built; return it ready to trace. Arguments are those of `lower`.

    Raises:
        BlockTypeError: when only a run of it tells which cells there are.
    """
    if program.walks:
        fix = "give it to foldbatch.compile, which runs it as a walk"
        raise BlockTypeError(shown(block), "a block whose cells are all known", "one that calls walks", fix)
    replacements = Replacements() if replacements is None else replacements
    parameters = [replacements.of(parameter) for parameter in program.parameters]
    model = link(program.drafts, program.type, program.results, parameters, replacements=replacements)
    program_variables = program.globals, program.collections, program.memos
    options = max_calls, replacements
    return Lowered(block, program.functions, model, policy, *program_variables, *options, program, write)


@dataclass(frozen=True, slots=True)
class Built:
    """A built block: its tracing program, and drafts of the cells that it calls."""

    functions: Sequence[Procedure]  # of the tracing program, the root's first
    drafts: list[Draft]  # of the cells
    type: Type  # of the block's result
    results: list[Flow]  # the wires of that
    parameters: list[Parameter]  # those that the cells read
    globals: dict[str, object]  # `globals`, `collections`, `memos`: as of `Lowered`
    collections: tuple[str, ...]
    memos: list[str]
    walks: list[Any]  # the functions of the user that note calls of their own
    asides: frozenset[str]  # what was asked for


def built(
    block: Buildable, asides: frozenset[str] = ASIDES, input_type: Type = OBJECT, path: str = MODEL
) -> Built:
    """Build a block that reads a value of `input_type`; errors begin with `path`."""
    builder = Builder(path, asides=asides)
    root = builder.declare(block, "root", input_type, VOID)
    with builder.define(root, path) as argument:
        try:
            result = build(block, builder, argument)
        except RecursionError:
            fix = "put parts into ForwardDeclarations; a block must not contain itself in any other way"
            raise BlockValueError(path, "blocks that end", "too many inside each other", fix) from None
        type_ = type_of(result)
        root.results += [Terminal(f"r{i}", t, new_wires(t)) for i, t in enumerate(run_time_terminals(type_))]
        make_return(builder, root, result)
    _refuse_endless(builder.functions)
    for draft, label in zip(builder.drafts, tell_apart(builder.labels), strict=True):
        draft.name = label
    results = list(chain.from_iterable(_wires(slot.wires) for slot in root.results))
    drafts, functions = builder.drafts, builder.functions
    if builder.left_out:
        kept = needed(drafts, results)
        functions = pruned(functions, kept)
        drafts = [pruned_draft.draft for pruned_draft in kept.values()]
    memos = decide_memos(functions)
    constants = chain.from_iterable(constants_of(function.body) for function in functions)
    return Built(
        functions,
        drafts,
        type_,
        results,
        list(builder.parameters),
        {**{constant.name: constant.value for constant in constants}, KINDS: Kinds()},
        tuple(builder.collecting.values()),
        memos,
        [s.function.value for f in functions for s in statements_of(f.body) if isinstance(s, InvokeWalk)],
        asides,
    )


def alike(first: Built, second: Built) -> bool:
    """Return whether two buildings of a block have equal programs, which read the same, and equal cells.

    They have not where a function of the user's has come to read something else in the meantime.
    """
    bindings = [
        {name: x for name, x in building.globals.items() if name != KINDS} for building in (first, second)
    ]
    parts = [(program_text(building.functions).source, building.type) for building in (first, second)]
    forms = [[_form_of(draft) for draft in building.drafts] for building in (first, second)]
    return parts[0] == parts[1] and forms[0] == forms[1] and means_same(bindings[0], bindings[1])


def _form_of(draft: Draft) -> list[Any]:
    """Return the computation of a cell as plain data, equal for two buildings of one block."""
    members = [node for _, sequence in draft.sequences for node, _ in sequence]
    inputs = [*(node for node, _ in draft.operands), *(node for node, _ in draft.feeds), *members]
    graph = Graph(tuple(inputs), tuple(numbered_sites(draft.results, inputs)))
    asides = [name for name, _ in draft.losses], [name for name, _ in draft.metrics], draft.labels
    nodes = in_order_of_reading(graph)
    constants = [node.attrs["value"] for node in nodes if node.op is CONSTANT]
    parameters = [id(node.attrs["parameter"]) for node in nodes if node.op is PARAMETER]
    sizes = len(draft.outputs), len(draft.operands), [len(sequence) for _, sequence in draft.sequences]
    contents = [(array.shape, array.dtype.str, array.tobytes()) for array in constants]
    return [draft.name, print_graph(graph), contents, parameters, asides, sizes, draft.marks, draft.keys]


def _wires(nested: object) -> Iterator[Flow]:
    """Yield the wires of a terminal: of a sequence, those of its elements."""
    match nested:
        case Flow():
            yield nested
        case tuple():
            for part in nested:
                yield from _wires(part)


def depth(model: Model, trace: Trace) -> int:
    """Return the longest chain of calls that compute something, in one example.

    A call whose computation goes to losses and metrics alone counts at the end of a chain, and not within
    one.
    """
    cells = [cell.graph for cell in model.cells]
    passing = {k for k, cell in enumerate(cells) if _computes(cell.outputs, cell)}
    ending = [_computes(cell.results, cell) for cell in cells]
    calls = trace.calls, trace.elements, trace.values
    chains = longest_chains(model.signatures, *calls, range(len(cells)), passing)
    return max((n - (k in passing) + ending[k] for k, part in chains.items() for n in part), default=0)


def _computes(results: Sequence[Node], graph: CellGraph) -> bool:
    """Whether results need computation: data as read (or as one-hot vectors), constants and views do not."""
    inputs = set(graph.inputs)
    return any(
        n.op not in SOURCES and n not in inputs and not is_view(n) and n.op.name != "one_hot"
        for n in reachable(results, graph.inputs)
    )


def _refuse_endless(functions: Sequence[Procedure]) -> None:
    """Refuse declarations that refer to themselves for any example."""
    edges = {f.name: f.always for f in functions}
    component = components([f.name for f in functions], edges)
    for function in functions:
        if any(component[callee] == component[function.name] for callee in function.always):
            actual, fix = "one that always refers to itself", "choose with OneOf where to end"
            raise BlockTypeError(function.path, "a definition that ends", actual, fix)


# A statement that is used; or ("name", function, variable), ("result", function, number), ("run", function),
# or ("effect", function): what callers can see is changed.
Fact: TypeAlias = Hashable


# -- pruning: that a variable is used implies the statements that give it its value; a statement implies the
# variables that it reads, and the loop or branch around it; a call implies that its function runs. What
# follows from the results of an example, from losses and from metrics stays. Functions of the user are taken
# to have no effect but what they return.


def pruned(functions: Sequence[Procedure], kept: Mapping[int, PrunedDraft]) -> list[Procedure]:
    """Return the functions of a tracing program without the statements whose outcome has no reader.

    `kept` is what is left of each cell that they call, by number; the new statements call that.
    """
    remaining = [replace(f, body=changed(f.body, lambda part: _of_kept(part, kept))) for f in functions]
    used, size, root = _Used(remaining), -1, remaining[0]
    used.live |= {("run", root.name), *(("result", root.name, j) for j in range(len(root.results)))}
    while size < (size := len(used.live)):
        bodies = [used.used_statements(f.name, f.body) for f in remaining]
    pairs = zip(remaining, bodies, strict=True)
    return [replace(f, body=body) for f, body in pairs if ("run", f.name) in used.live]


def _of_kept(part: Part, kept: Mapping[int, PrunedDraft]) -> Any:
    """Return a part with the call of a pruned cell; the number of an output that is gone becomes None."""
    match part:
        case CallOutput(call, cell, number):
            if cell not in kept or number not in kept[cell].outputs:
                return None
            return CallOutput(call, kept[cell].draft.number, kept[cell].outputs[number])
        case Call(draft=draft) if draft is not None:
            if draft.number not in kept:
                return GONE
            remainder = kept[draft.number]
            return replace(
                part,
                draft=remainder.draft,
                arguments=tuple(part.arguments[i] for i in remainder.arguments if i < len(part.arguments)),
                lists=tuple(part.lists[i] for i in remainder.sequences),
                feeds=tuple(part.feeds[i] for i in remainder.feeds),
            )
    return part


class _Used:
    """The facts known so far about what a tracing program uses: variables, results, functions and effects."""

    def __init__(self, functions: Sequence[Procedure]) -> None:
        self.functions = {f.name: f for f in functions}
        self.locals = {
            f.name: {*f.names}.union(*(statement.targets for statement in statements_of(f.body)))
            for f in functions
        }
        self.live: set[Fact] = set()

    def names(self, function: str, expressions: Iterable[Expression]) -> list[Fact]:
        """Return the facts that the variables in some expressions are used, of a function or globals."""
        names = [x for expression in expressions for x in names_of(expression)]
        return [("name", function if x in self.locals[function] else "", x) for x in names]

    def used_statements(self, function: str, body: Body) -> Body:
        """Return the statements that have readers or effects, and note the facts that they use.

        Results and arguments that nobody reads become None.
        """
        statements = [part for statement in reversed(body) for part in self._used_parts(function, statement)]
        return tuple(statements[::-1])

    def _used_parts(self, function: str, statement: Statement) -> Iterator[Statement]:
        """Yield a statement with its used operands and bodies, if it has a reader or an effect."""
        live, bodies = self.live, [self.used_statements(function, inner) for inner in statement.bodies]
        if isinstance(statement, Limit) or (isinstance(statement, Apply) and statement.target is None):
            local_facts = [fact for fact in self.names(function, statement.reads) if fact[1]]  # type: ignore[index]
            if live.issuperset(local_facts):  # a check stays as long as the variables that it reads
                yield statement
            return
        draft = statement.draft if isinstance(statement, Call) else None
        sinks = draft is not None and bool(draft.losses or draft.metrics)
        sinks |= isinstance(statement, Invoke) and ("effect", statement.function) in live
        inside = chain([("run", function)] if isinstance(statement, Return) else (), *statement.bodies)
        gives = self.names(function, (*statement.targets, *statement.changes))
        if not sinks and live.isdisjoint(chain(gives, inside)):
            return
        live.add(statement)
        if sinks or not self.locals[function].issuperset(statement.changes):
            live.add(("effect", function))
        match statement:
            case Return(_, values):
                results = [("result", function, j) in live for j in range(len(values))]
                statement = replace(statement, values=_only(values, results))
            case Invoke(_, results, name, arguments):
                live.add(("run", name))
                wanted = [fact in live for fact in self.names(function, results)]
                live.update(("result", name, j) for j, read in enumerate(wanted) if read)
                read = [("name", name, parameter) in live for parameter in self.functions[name].names]
                statement = replace(statement, arguments=_only(arguments, read))
            case Assign() if len(statement.pairs) > 1:
                facts = self.names(function, statement.into)
                pairs = [p for p, fact in zip(statement.pairs, facts, strict=True) if fact in live]
                targets, values = zip(*pairs, strict=True)
                value = values[0] if len(pairs) == 1 else Tuple(values)
                statement = replace(statement, into=targets, value=value)
            case Branch():
                statement = replace(statement, cases=tuple(bodies))
            case Loop():
                statement = replace(statement, body=bodies[0])
        live.update(self.names(function, statement.reads))
        yield statement


def _only(values: Sequence[Expression], wanted: Sequence[bool]) -> tuple[Expression, ...]:
    return tuple(value if keep else None for value, keep in zip(values, wanted, strict=True))
