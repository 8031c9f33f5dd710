"""Blocks that refer to themselves."""

from __future__ import annotations

from typing import Any

from foldbatch.blocks.block import AnyBlock, Block, as_block, build, named
from foldbatch.blocks.builder import Builder
from foldbatch.blocks.constants import shorthand
from foldbatch.blocks.flow import make_call, make_return
from foldbatch.blocks.settings import settings_of
from foldbatch.blocks.values import UnknownTypeError, Value, as_object, type_of
from foldbatch.errors import BlockTypeError, BlockValueError
from foldbatch.types import OBJECT, Type, as_type, describe_value


class ForwardDeclaration:
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

    >>> from foldbatch.blocks.choice import OneOf
    >>> from foldbatch.blocks.function import Function
    >>> from foldbatch.blocks.leaves import Scalar
    >>> from foldbatch.blocks.items import Record
    >>> total = ForwardDeclaration(output_type="float32", name="total")
    >>> pair = Record((total(), total())) >> Function(lambda a, b: a + b)
    >>> total.resolve_to(OneOf(lambda x: isinstance(x, list), {False: Scalar(), True: pair}))
    >>> total().eval([[1, 2], 3])
    array(6., dtype=float32)

    One that yields nothing adds up losses, say:

    >>> from foldbatch.blocks.leaves import Void
    >>> from foldbatch.blocks.metrics import Loss
    >>> from foldbatch.blocks.sequences import Map
    >>> losses = ForwardDeclaration(output_type=None, name="losses")
    >>> every = Map(losses()) >> Void()
    >>> losses.resolve_to(OneOf(lambda x: isinstance(x, list), {False: Scalar() >> Loss(), True: every}))
    >>> losses().eval([[1, 2], 3]) is None
    True

    A part that an example holds in several places is one object to Python, and its values are computed once:
    here 60 times one list of twice the same list, a sum of 2 ** 60 numbers. The tensors that the declaration
    reads besides must be the same as well. Scalars, strings and trees are visited at each place.

    >>> from foldbatch.program.compiling import compile
    >>> shared = [1.0, 1.0]
    >>> for _ in range(59):
    ...     shared = [shared, shared]
    >>> program = compile(total(), "numpy")
    >>> float(program.run([shared])[0]) == 2.0**60, program.describe([shared]).calls
    (True, 62)

    Losses, metrics, `Collect` and random numbers count visits. A declaration that has any of them, or uses
    another one that has, visits each place by default; with ``memo=True`` each object once, so that a loss
    at a shared object is added once. Beware of tuples then: equal constants may be one object to Python.
    Pass ``memo=False`` if a function of yours changes what it reads, as one that takes items off a list does.
    """

    def __init__(
        self,
        input_type: Any = None,
        output_type: Any = ...,  # None declares that nothing is yielded
        name: str = "forward",
        *,
        memo: bool | None = None,
    ) -> None:
        where = "ForwardDeclaration"
        self.input_type: Type = OBJECT if input_type is None else as_type(input_type, f"{where} input_type")
        self.output_type: Type | None = None  # until it is declared
        if output_type is ... and self.input_type != OBJECT:
            found, fix = (
                f"input_type={input_type!r} alone",
                f"write ForwardDeclaration(output_type={input_type!r})",
            )
            raise BlockTypeError(where, "the type that it yields", found, fix)
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

    def resolve_to(self, block: Any) -> None:
        """Say what the declaration stands for."""
        if self.block is not None:
            fix = "make another declaration"
            raise BlockValueError(f"{self.name}.resolve_to", "one definition", "a second one", fix)
        self.block = as_block(block, f"{self.name}.resolve_to")

    def settings(self) -> dict[str, Any]:
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
        declaration = self.declaration
        where = builder.where(self)
        if declaration.input_type == OBJECT:
            value = as_object(value)
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
