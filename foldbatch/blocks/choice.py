"""Blocks that choose by what the example holds, and blocks that refer to themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from foldbatch.blocks.block import (
    AnyBlock,
    Block,
    Key,
    Settings,
    as_block,
    check,
    function_name,
    keyed,
    named,
    settings_of,
)
from foldbatch.blocks.builder import Builder
from foldbatch.blocks.building import build
from foldbatch.blocks.drafts import Object, UnknownTypeError, Value, as_object, type_of
from foldbatch.blocks.flow import Variables, apart, assign, declare, make_call, make_return, pass_on, read
from foldbatch.blocks.function import shorthand, zeros
from foldbatch.blocks.items import GetItem
from foldbatch.blocks.leaves import expect_object
from foldbatch.blocks.printing import levels_of
from foldbatch.blocks.tracing import Apply, Body, Branch, Case, Present
from foldbatch.errors import BlockTypeError, BlockValueError
from foldbatch.model.columns import refuse
from foldbatch.model.labels import case_label
from foldbatch.system.closed import Closed
from foldbatch.types import OBJECT, VOID, ObjectType, TupleType, Type, as_type, describe_value

SHOWN_KEYS = 12  # keys named in an error


class OneOf(Block[Any, Any]):
    """Applies the block of the case that a key names.

    Args:
        key_fn: a Python function of the input object, or a block that yields an object.
        cases: a dict or pairs from key to block, or a tuple or list of blocks whose keys are
            0, 1, ... (negative keys count from the end).
        pre_block: applied to the input before it goes to the case; the key sees the original.

    All cases must yield the same type. Reports and errors call a case by its key where that is a word,
    ``tree.leaf``, else by the word for what was asked, too: ``tree(is_leaf=True)``.

    Raises:
        BlockValueError: when there are no cases, or two of one key.
        BlockTypeError: when `key_fn` is not callable, or the cases yield different types.
        ExampleKeyError: when tracing, where there is no case for the key.

    >>> sign = fb.OneOf(lambda x: x < 0, {True: fb.Scalar() >> fb.Function(lambda x: -x), False: fb.Scalar()})
    >>> sign.eval(-3)
    array(3., dtype=float32)
    """

    def __init__(
        self,
        key_fn: Callable[[Any], object] | AnyBlock,
        cases: Mapping[Key, object] | Iterable[object],
        pre_block: object = None,
    ) -> None:
        if not callable(key_fn) and not isinstance(key_fn, Block):
            fix = "for example lambda x: x['kind'], or GetItem('kind')"
            raise BlockTypeError("OneOf", "a function or a block as key_fn", describe_value(key_fn), fix)
        pairs, has_keys = keyed(cases, "OneOf.case")
        if not pairs:
            raise BlockValueError("OneOf", "at least one case", "none", "give a dict from key to block")
        self.key_fn = key_fn
        self.cases = tuple(pairs)
        self.listed = not has_keys
        self.pre_block = None if pre_block is None else as_block(pre_block, "OneOf.pre_block")

        check(self)

    def settings(self) -> Settings:
        cases = tuple(block for _, block in self.cases) if self.listed else self.cases
        return {**settings_of(self), "cases": cases}

    @property
    def input_type(self) -> Type | None:
        return self.key_fn.input_type if isinstance(self.key_fn, Block) else OBJECT

    def build(self, builder: Builder, value: Value) -> Value:
        """Build every case in a nested region; a branch assigns its result to shared variables."""
        if builder.deep:
            return apart(builder, self, value)
        origin = value.place if isinstance(value, Object) else ()
        key = self._key(builder, value)
        if self.pre_block is not None:
            with builder.at(".pre_block"):
                value = build(self.pre_block, builder, value)
        passed = pass_on(builder, value)
        index = {key: number for number, (key, _) in enumerate(self.cases)}
        if self.listed:
            index |= {key - len(self.cases): key for key in list(index)}
        keys = [key.__name__ if isinstance(key, type) else repr(key) for key, _ in self.cases[:SHOWN_KEYS]]
        shown = keys + ["..."] * (len(self.cases) > SHOWN_KEYS)
        expected = f"a key of {', '.join(shown)}"
        chosen = builder.fresh("case")
        blame, table = builder.blame(key, expected), builder.constant("index", index)
        miss = Apply(
            builder.blame(key), None, builder.constant("refuse", _refusal(expected)), (key.expression,)
        )
        result: Variables | None = None
        builder.enter()
        bodies: list[Body] = []
        question = _question(self.key_fn)
        for (case, block), levels in zip(self.cases, levels_of(len(self.cases) + 1), strict=False):
            with builder.at(case_label(case, question)), builder.inside(1 + levels) as body:
                outcome = build(block, builder, read(builder, passed))
                result = result or declare(builder, type_of(outcome), origin)
                wanted = f"{result.type}, as case {self.cases[0][0]!r} yields"
                assign(builder, result, outcome, "make all cases yield one type", wanted)
            bodies.append(tuple(body))
        builder.add(Branch(blame, Case(chosen, table, key.expression), (*bodies, (miss,))))
        assert result is not None
        return read(builder, result)

    def _key(self, builder: Builder, value: Value) -> Object:
        """Add the statements that find the key of an example; return it as an object of the tracing program.

        Raises:
            BlockTypeError: when the key's block yields no object, or the value is none.
        """
        if isinstance(self.key_fn, Block):
            with builder.at(".key"):
                key = as_object(build(self.key_fn, builder, value))
            if not isinstance(key, Object):
                fix = "choose by the example's data; on tensors, use ops.where"
                expected = "a block that yields an object"
                raise BlockTypeError(f"{builder.path}.key", expected, str(type_of(key)), fix)
            return key
        value = as_object(value)
        if not isinstance(value, Object):
            fix = "as key_fn give a block that finds an object; to choose on tensors, use ops.where"
            raise BlockTypeError(builder.where(self), "a Python object", str(type_of(value)), fix)
        function = builder.constant("key_fn", self.key_fn)
        return builder.apply(function, value, where=f"{builder.path} OneOf", calls="key_fn")

    def arguments(self) -> str:
        """Return the arguments as text: the key, the cases as a list or a dict, and the block before them."""
        key = repr(self.key_fn) if isinstance(self.key_fn, Block) else function_name(self.key_fn)
        if self.listed:
            cases = f"[{', '.join(repr(block) for _, block in self.cases)}]"
        else:
            cases = f"{{{', '.join(f'{key!r}: {block!r}' for key, block in self.cases)}}}"
        return f"{key}, {cases}" + (f", pre_block={self.pre_block!r}" if self.pre_block else "")


class Optional(Block[ObjectType | TupleType, Any]):
    """Applies a block unless the input is None, or, of a tuple, an object in it is None.

    Args:
        some: the block for what is not None.
        none: what stands for None, a block that reads nothing, or a tuple of such; by default zeros of
            `some`'s type.

    A key that may be absent is read with `GetItem(key, default=None)`. In a tuple, as of a tensor and a
    label, the block is given all of it, or else nothing of it.

    Raises:
        BlockTypeError: when the input is no object and no tuple with one, the blocks yield different
            types, or there is no zero of `some`'s type.

    >>> [float(fb.Optional(fb.Scalar()).eval(x)) for x in (3, None)]
    [3.0, 0.0]
    >>> weight = fb.GetItem("weight", default=None) >> fb.Optional(fb.Scalar(), fb.FromTensor(1.0))
    >>> [float(weight.eval(x)) for x in ({"weight": 5}, {"weight": None}, {})]
    [5.0, 1.0, 1.0]
    """

    def __init__(self, some: object, none: object = None) -> None:
        self.some = as_block(some, "Optional.some")
        self.none = None if none is None else as_block(none, "Optional.none")
        check(self)

    @property
    def input_type(self) -> Type | None:
        reads_object = self.some.passes_on or self.some.input_type in (OBJECT, VOID)
        return OBJECT if reads_object else None

    def build(self, builder: Builder, value: Value) -> Value:
        """Add a branch to the tracing program: run the block if no object is None, else the substitute.

        Args:
            builder: the builder of the tracing program.
            value: the object that may be None, or a tuple with such objects.

        Returns:
            The result of the branch.
        """
        items = map(as_object, value) if isinstance(value, tuple) else [expect_object(self, builder, value)]
        objects = [item for item in items if isinstance(item, Object)]
        if not objects:
            fix = "give it the object that may be None"
            raise BlockTypeError(builder.where(self), "an object in the tuple", str(type_of(value)), fix)
        if builder.deep:
            return apart(builder, self, value)
        passed = pass_on(builder, value)
        blame = builder.blame()
        with builder.at(".some"), builder.inside() as present_body:
            outcome = build(self.some, builder, read(builder, passed))
            result = declare(builder, type_of(outcome), objects[0].place)
            assign(builder, result, outcome, "")
        with builder.at(".none"), builder.inside() as absent_body:
            empty = zeros(result.type, builder.path) if self.none is None else build(self.none, builder, None)
            fix, expected = "make both yield one type", f"{result.type}, as the other block yields"
            assign(builder, result, empty, fix, expected)
        present = Present(tuple(item.expression for item in objects))
        builder.add(Branch(blame, present, (tuple(present_body), tuple(absent_body))))
        return read(builder, result)


def _question(key_fn: object) -> str:
    """Return the user's word for what a key answers, for the labels of cases; empty without one."""
    word = key_fn.key if isinstance(key_fn, GetItem) else getattr(key_fn, "__name__", "")
    if not isinstance(word, str) or not word.isidentifier() or isinstance(key_fn, type):
        return ""  # `type` asks nothing of the user's
    return word


def _refusal(expected: str) -> Callable[[Any], None]:
    def raise_it(key: object) -> None:
        refuse(expected, key, "add a case for it")

    return raise_it


class ForwardDeclaration(Closed):
    """A block to be defined later, so that its definition may refer to it.

    Args:
        input_type: what it reads; None means a Python object.
        output_type: what it yields, None for nothing (void). It must be given, for a recursive block
            cannot infer it.
        name: for reports and errors.
        memo: whether an object that an example holds in several places is visited once for all of them:
            True, False, or None for where this changes no results, losses or metrics; see below.

    Calling it gives a block; `resolve_to` says, once, what it stands for.

    Raises:
        BlockTypeError: at once where a type is none; in ``compile()`` where it was never resolved,
            has no output type, its definition yields another type, or refers to itself in any case;
            when `memo` is something else.
        BlockValueError: when it is resolved twice.

    >>> total = fb.ForwardDeclaration(output_type="float32", name="total")
    >>> pair = fb.Record((total(), total())) >> fb.Function(lambda a, b: a + b)
    >>> total.resolve_to(fb.OneOf(lambda x: isinstance(x, list), {False: fb.Scalar(), True: pair}))
    >>> total().eval([[1, 2], 3])
    array(6., dtype=float32)

    One that yields nothing adds up losses, say:

    >>> losses = fb.ForwardDeclaration(output_type=None, name="losses")
    >>> every = fb.Map(losses()) >> fb.Void()
    >>> one = fb.Scalar() >> fb.Loss()
    >>> losses.resolve_to(fb.OneOf(lambda x: isinstance(x, list), {False: one, True: every}))
    >>> losses().eval([[1, 2], 3]) is None
    True

    A part that an example holds in several places is one object to Python, and its values are computed once:
    here 60 times one list of twice the same list, a sum of 2 ** 60 numbers. The tensors that the declaration
    reads besides must be the same as well. Scalars, strings and trees are visited at each place.

    >>> shared = [1.0, 1.0]
    >>> for _ in range(59):
    ...     shared = [shared, shared]
    >>> program = fb.compile(total(), "numpy")
    >>> float(program.run([shared])[0]) == 2.0**60, program.describe([shared]).calls
    (True, 62)

    Losses, metrics, `Collect` and random numbers count visits. A declaration that has any of them, or uses
    another one that has, visits each place by default; with ``memo=True`` each object once, so that a loss
    at a shared object is added once. Beware of tuples then: equal constants may be one object to Python.
    Pass ``memo=False`` if a function of yours changes what it reads, as one that takes items off a list does.
    """

    def __init__(
        self,
        input_type: object = None,
        output_type: object = ...,  # None declares that nothing is yielded
        name: str = "forward",
        *,
        memo: bool | None = None,
    ) -> None:
        where = "ForwardDeclaration"
        self.input_type: Type = OBJECT if input_type is None else as_type(input_type, f"{where} input_type")
        self.output_type: Type | None = None  # until it is declared
        if output_type is ... and self.input_type != OBJECT:
            actual = f"input_type={input_type!r} alone"
            fix = f"write ForwardDeclaration(output_type={input_type!r})"
            raise BlockTypeError(where, "the type that it yields", actual, fix)
        if output_type is not ...:
            self.output_type = as_type(output_type, f"{where} output_type")
        self.name = named(name, "ForwardDeclaration")
        self.block: AnyBlock | None = None
        if memo is not None and not isinstance(memo, bool):
            fix = "leave it out for the default"
            raise BlockTypeError(f"{where} memo", "True, False or None", describe_value(memo), fix)
        self.memo = memo

    def __call__(self) -> AnyBlock:
        """Return a block that stands for the declared one."""
        return Reference(self)

    def resolve_to(self, block: object) -> None:
        """Define the block that the declaration stands for."""
        if self.block is not None:
            fix = "make another declaration"
            raise BlockValueError(f"{self.name}.resolve_to", "one definition", "a second one", fix)
        self.block = as_block(block, f"{self.name}.resolve_to")

    def settings(self) -> Settings:
        """Return the arguments that the declaration was made with, by name."""
        settings = settings_of(self)
        if self.output_type is None:  # not declared; None would declare that nothing is yielded
            del settings["output_type"]
        return settings

    def __repr__(self) -> str:
        types = "" if self.input_type == OBJECT else f"input_type={shorthand(self.input_type)}, "
        types += "" if self.output_type is None else f"output_type={shorthand(self.output_type)}, "
        memo = "" if self.memo is None else f", memo={self.memo}"
        return f"ForwardDeclaration({types}name={self.name!r}{memo})"


class Reference(Block[Any, Any]):
    """A use of a forward declaration."""

    def __init__(self, declaration: ForwardDeclaration) -> None:
        self.declaration = declaration

    @property
    def input_type(self) -> Type:
        return self.declaration.input_type

    def build(self, builder: Builder, value: Value) -> Value:
        """Build a call of the declaration's function; the first use builds that function, too."""
        declaration = self.declaration
        where = builder.where(self)
        if declaration.input_type == OBJECT:
            value = as_object(value)
        if declaration.input_type == VOID:  # a block that reads nothing accepts any input
            value = None
        if type_of(value) != declaration.input_type:
            fix = "declare the input_type that it is given"
            raise BlockTypeError(where, f"the declared {declaration.input_type}", str(type_of(value)), fix)
        if builder.inferring:
            if declaration.output_type is None:
                raise UnknownTypeError
            return builder.specimen(declaration.output_type)
        if declaration.block is None:
            fix = f"call {declaration.name}.resolve_to(...) before compiling"
            raise BlockTypeError(where, "a resolved declaration", "an unresolved one", fix)
        if declaration.output_type is None:
            fix = (
                "pass output_type=, for example ForwardDeclaration(output_type=(150, 150)), or None for void"
            )
            raise BlockTypeError(where, "a declared output type", "none", fix)
        function = builder.declared.get(declaration)
        if function is None:
            name = builder.beginning(declaration.name)
            function = builder.declare(declaration, name, declaration.input_type, declaration.output_type)
            function.memo = declaration.memo
            with builder.define(function, name) as argument:
                result = build(declaration.block, builder, argument)
                if declaration.output_type == OBJECT:
                    result = as_object(result)
                if type_of(result) != declaration.output_type:
                    fix = "correct the block or the declaration"
                    expected = f"the declared {declaration.output_type}"
                    raise BlockTypeError(declaration.name, expected, str(type_of(result)), fix)
                make_return(builder, function, result)
        return make_call(builder, function, value)

    def __repr__(self) -> str:
        return f"{self.declaration.name}()"
