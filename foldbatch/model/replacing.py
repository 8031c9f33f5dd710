"""Parameters that one program reads in the place of those of the layers, which other programs go on with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from foldbatch.params.parameters import Parameter
from foldbatch.static.graph import PARAMETER, Node, parameter_node, reachable, substitute


class Replacements(dict[Parameter, Parameter]):
    """The parameters of one program, by those of the layers whose place they take.

    It only grows, and everything that a program computes with looks parameters up here.

    Args:
        fresh: whether a parameter that has no replacement gets one when it is first looked up.

    >>> layer, kept = Parameter([2], name="bias"), Replacements()
    >>> kept.of(layer) is layer
    True
    >>> fresh = Replacements(fresh=True)
    >>> fresh.of(layer) is layer, fresh.of(layer) is fresh.of(layer)
    (False, True)
    """

    def __init__(self, *, fresh: bool = False) -> None:
        super().__init__()
        self.fresh = fresh

    def of(self, parameter: Parameter) -> Parameter:
        """Return the parameter that the program reads in the place of a layer's."""
        if parameter in self:
            return self[parameter]
        if not self.fresh:
            return parameter
        return self.setdefault(parameter, parameter.twin())  # two threads get the same one

    def nodes(self, results: Sequence[Node], inputs: Iterable[Node]) -> dict[Node, Node]:
        """Return the nodes of the program's parameters, by those of the layers' that results read.

        Parameters that only `inputs` are computed from are left out.
        """
        if not self and not self.fresh:
            return {}
        read = [node for node in reachable(results, [*inputs]) if node.op is PARAMETER]
        pairs = [(node, self.of(node.attrs["parameter"])) for node in read]
        return {node: parameter_node(p) for node, p in pairs if p is not node.attrs["parameter"]}

    def in_nodes(self, nodes: Sequence[Node], inputs: Iterable[Node]) -> list[Node]:
        """Return nodes that read the program's parameters, given the graph's inputs."""
        changed = self.nodes(nodes, inputs)
        return substitute(nodes, changed) if changed else list(nodes)
