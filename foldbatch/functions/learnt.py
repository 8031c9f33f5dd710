"""What is known of a walk: its cells, the wires between them, and whose numbers its parameters have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from foldbatch.functions.cells import Signature
from foldbatch.model.drafts import Draft
from foldbatch.params.parameters import Parameter
from foldbatch.static.graph import Node, parameter_node, substitute
from foldbatch.types import Type

Output = tuple[Signature, int]  # of a cell
Slot = tuple[
    Signature, int, int
]  # an operand (its number, -1), or a member of a list (its number, the list's)


@dataclass(slots=True)
class Learnt:
    """What is known of a walk; it only grows.

    Attributes:
        cells: the signatures that were called.
        wires: which outputs were read at which operands and members of lists.
        results: the outputs that were part of results.
        result: the structure of results, None before the first.
        parameters: in the order in which cells were first called.
        version: how often it grew.
        own: the parameters that a program which was read from a file has in the place of those of the layers
            that the walk calls: other programs go on with theirs.
        decides: whether the walk has asked for a number.
    """

    cells: dict[Signature, None] = field(default_factory=dict)
    wires: dict[Slot, set[Output]] = field(default_factory=dict)
    results: set[Output] = field(default_factory=set)
    result: Type | None = None
    parameters: dict[Parameter, None] = field(default_factory=dict)
    version: int = 0
    own: dict[Parameter, Parameter] = field(default_factory=dict)
    decides: bool = False

    def copy(self) -> Learnt:
        """Return what is known now, which goes on as it is while this grows."""
        return Learnt(
            dict(self.cells),
            dict(self.wires),
            self.results,
            self.result,
            dict(self.parameters),
            self.version,
            dict(self.own),
            self.decides,
        )

    def admit(self, signatures: Sequence[Signature]) -> None:
        """Take over cells, and the parameters that they read, in the order in which these were made."""
        self.cells |= dict.fromkeys(signatures)
        parameters = [self.own.get(p, p) for signature in signatures for p in signature.parameters()]
        self.parameters |= dict.fromkeys(sorted(parameters, key=lambda parameter: parameter.order))


def with_own(nodes: Sequence[Node], own: Mapping[Parameter, Parameter]) -> list[Node]:
    """Return what nodes are when they read other parameters."""
    if not own:
        return list(nodes)
    return substitute(nodes, {parameter_node(p): parameter_node(mine) for p, mine in own.items()})


def owned(draft: Draft, own: Mapping[Parameter, Parameter]) -> None:
    """Let a cell read other parameters."""
    parts = draft.outputs, draft.losses, draft.metrics
    left = iter(with_own([*parts[0], *(n for _, n in parts[1]), *(n for _, n in parts[2])], own))
    draft.outputs = {next(left): flow for flow in draft.outputs.values()}
    draft.losses = [(name, next(left)) for name, _ in draft.losses]
    draft.metrics = [(name, next(left)) for name, _ in draft.metrics]
