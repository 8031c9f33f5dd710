"""No two live values share memory, nothing is read before it is written, and little memory is used."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldbatch.engines.numpy.spelling import OVERWRITES
from foldbatch.static import ops
from foldbatch.static.graph import CONSTANT, PARAMETER, Graph, Node, apply, constant, input_node, is_view
from foldbatch.static.memory import Buffers, Scratch, plan
from foldbatch.static.op import CALL, UNBATCHED, Axis
from foldbatch.static.places import access
from foldbatch.types import TensorType
from tests.static.run_kernel import check_kernel, interpret, random_rows, run_graph
from tests.strategies import Problem, problems

V, M = TensorType((3,), "float64"), TensorType((3, 3), "float64")


def _planned(graph: Graph, kept: tuple[Node, ...] = ()) -> tuple[list[Node], Buffers]:
    nodes = [node for node in graph.nodes if node.op not in (PARAMETER, CONSTANT)]
    return nodes, plan(nodes, kept, graph.outputs, OVERWRITES)


class Memory:
    """A simulation of a kernel: who wrote each element of each buffer last.

    `seen` is what a node's elements looked like when it had been computed; they must look the same
    whenever it is read.
    """

    def __init__(self, made: Buffers, kept: tuple[Node, ...]) -> None:
        self.made = made
        self.kept = kept
        self.buffers: dict[object, list[Node | None]] = {}
        self.seen: dict[Node, list[Node | None]] = {}

    def place(self, node: Node) -> tuple[object, slice]:
        """Return the node's buffer and the range of it that it fills."""
        if node in self.made.sections:
            section = self.made.sections[node]
            return self.place(section.concat)[0], slice(section.start, section.stop)
        key = node if node in self.kept else self.made.scratch[node]
        self.buffers.setdefault(key, [None] * max(node.type.size, 1))
        return key, slice(0, len(self.buffers[key]))

    def compute(self, node: Node) -> None:
        """Check the node's operands, and write it."""
        for x in node.inputs:
            self.check(x, node)
        if access(node).root is not node:
            return
        key, at = self.place(node)
        if isinstance(key, Scratch):
            assert (key.type, key.axis) == (node.type, node.axis) or node in self.made.sections
        mine = {part for part, section in self.made.sections.items() if section.concat is node}
        buffer = self.buffers[key]
        buffer[at] = [holder if holder in mine else node for holder in buffer[at]]
        self.seen[node] = buffer[at]

    def check(self, x: Node, reader: object) -> None:
        """Check that a node's elements are as they were when it was computed."""
        while is_view(x) and x not in self.seen:
            x = x.inputs[0]
        if x in self.seen:
            key, at = self.place(x)
            assert self.buffers[key][at] == self.seen[x], f"{reader} reads {x}, which is overwritten"


def _check(graph: Graph, kept: tuple[Node, ...] = ()) -> Buffers:
    nodes, made = _planned(graph, kept)
    memory = Memory(made, kept)
    for node in nodes:
        memory.compute(node)
    for node in (*graph.outputs, *kept):
        memory.check(node, "the caller")
    return made


@given(problems(smooth=False, gradients=True), st.randoms(use_true_random=False))
@settings(max_examples=27, deadline=None)
def test_no_two_live_values_share_memory(problem: Problem, random: object) -> None:
    """Whatever is kept, every operand still is what it was when an op reads it."""
    nodes, _ = _planned(problem.graph)
    owned = [node for node in nodes if not is_view(node)]
    kept = tuple(node for node in owned if random.random() < 0.2)  # type: ignore[attr-defined]
    _check(problem.graph)
    _check(problem.graph, kept)


@given(problems(smooth=False, gradients=True), st.randoms(use_true_random=False))
@settings(max_examples=27, deadline=None)
def test_a_kernel_computes_its_graph_in_buffers_full_of_nan(problem: Problem, random: object) -> None:
    """Text, buffers and sections of random graphs agree with the interpreter, row by row."""
    check_kernel(problem, random)


def test_a_textbook_case_reuses_the_buffer_of_the_product() -> None:
    r"""d = a * b + 1 needs one buffer, and c * c in it another.

    a   b       s0 = a * b
     \ /        s0 = s0 + 1
      *    1    s1 = s0 * c, since d is read again
       \  /
        d
    """
    a, b, c = (input_node(V) for _ in range(3))
    made = _check(Graph((a, b), (a * b + 1,)))
    assert (len(made.slots), made.in_place) == (1, 1)
    d = a * b + 1
    made = _check(Graph((a, b, c), (d * c, d)))
    assert (len(made.slots), made.in_place) == (2, 1)


def test_a_view_that_must_be_copied_has_a_buffer() -> None:
    """A reshape of a transpose: its elements lie in another order; what it copies may then be overwritten."""
    x = input_node(M)
    turned = ops.reshape(ops.transpose(ops.exp(x)), 9)
    made = _check(Graph((x,), (ops.tanh(turned) * 2.0,)))
    assert set(made.scratch) >= {turned}
    assert [slot.type.shape for slot in made.slots] == [(3, 3), (9,)]
    flat = ops.reshape(ops.exp(x), 9)
    assert flat not in _check(Graph((x,), (ops.tanh(flat),))).scratch


def test_a_kept_part_is_not_computed_in_the_concatenation() -> None:
    """It has a buffer of its own, and so has a result."""
    a, b, c = (input_node(V) for _ in range(3))
    parts = [ops.exp(a), ops.exp(b), ops.exp(c)]
    whole = ops.concat(parts)
    made = _check(Graph((a, b, c), (whole, parts[0])), kept=(parts[1],))
    assert list(made.sections) == [parts[2]]
    made = _check(Graph((a, b, c), (ops.tanh(whole),)), kept=(whole,))
    assert list(made.sections) == parts
    assert list(made.scratch) == [ops.tanh(whole)]


def _section_read_late(a: Node, b: Node) -> tuple[Node, ...]:
    part = ops.tanh(a)
    return ops.concat([part, ops.exp(b)]) * 2.0, part + 1.0


def _sum_with_a_view(a: Node, b: Node) -> tuple[Node, ...]:
    x = ops.tanh(a)
    return (ops.tanh(ops.add(x, ops.exp(b), ops.transpose(x))),)


def _sum_with_itself(a: Node, b: Node) -> tuple[Node, ...]:
    x = ops.exp(a)
    return (ops.tanh(ops.add(x, ops.tanh(b), x)),)


def _product_in_a_section(a: Node, b: Node) -> tuple[Node, ...]:
    product = ops.reshape(a @ np.arange(6.0).reshape(3, 2), 6)
    return (ops.tanh(ops.concat([product, ops.exp(ops.reshape(b, 9))])),)


def _scalar_in_a_section(a: Node, b: Node) -> tuple[Node, ...]:
    total = ops.sum(ops.reshape(a, 9))
    return (ops.concat([ops.reshape(total * 2.0, 1), ops.exp(ops.reshape(b, 9))]),)


@pytest.mark.parametrize("axis", [CALL, UNBATCHED])
@pytest.mark.parametrize(
    "outputs",
    [_section_read_late, _sum_with_a_view, _sum_with_itself, _product_in_a_section, _scalar_in_a_section],
)
def test_memory_shared_in_a_roundabout_way(outputs: object, axis: Axis) -> None:
    """Parts read after their concatenation is dead, sums whose second pass reads what the first overwrote."""
    shape = (3,) if outputs is _section_read_late else (3, 3)
    a, b = (input_node(TensorType(shape, "float64"), axis) for _ in range(2))
    graph = Graph((a, b), outputs(a, b))  # type: ignore[operator]
    _check(graph)
    rows = random_rows(np.random.default_rng(0), graph, 2)
    for found, expected in zip(run_graph(graph, rows), interpret(graph, rows), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_the_simulation_notices_a_shared_buffer() -> None:
    """The test above would fail if two live values had one buffer."""
    a, b = input_node(V), input_node(V)
    graph = Graph((a, b), (ops.exp(a) / (ops.exp(b) + constant(1.0, "float64")),))
    nodes, made = _planned(graph)
    slot = made.scratch[nodes[0]]
    made.scratch.update(dict.fromkeys(made.scratch, slot))
    memory = Memory(made, ())
    with pytest.raises(AssertionError, match="overwritten"):
        for node in nodes:
            memory.compute(node)


def test_a_chain_of_thousands_of_ops_is_planned() -> None:
    """Without recursion, in one buffer."""
    x = input_node(V)
    y = x
    for _ in range(3000):
        y = apply("tanh", y)
    assert len(_check(Graph((x,), (y,))).slots) == 1
