"""Of a cell stays what leads to results, losses and metrics, with new numbers."""

from __future__ import annotations

from foldbatch.model.drafts import Draft, Feed
from foldbatch.model.needed import needed
from foldbatch.model.wires import Flow
from foldbatch.static import ops
from foldbatch.static.graph import Node, input_node
from foldbatch.static.op import ragged
from foldbatch.types import TensorType

T = TensorType((2,))


def reads(node: Node) -> tuple[Node, Feed]:
    return node, Feed(T, "", "")


def first_wire(draft: Draft) -> Flow:
    return next(iter(draft.outputs.values()))


def chain() -> tuple[list[Draft], list[Node]]:
    """Return two cells: x, y -> x + x, y + y, x + y; and from the last two of these p -> p * p, q -> q * q."""
    x, y, p, q = (input_node(T) for _ in range(4))
    first, second = Draft("first", 0, feeds=[reads(x), reads(y)]), Draft("second", 1)
    for node in (x + x, y + y, x + y):
        first.output(node)
    for node, wire in zip((p, q), list(first.outputs.values())[1:], strict=True):
        second.operands.append((node, Flow()))
        wire.feed(second.operands[-1][1])
        second.output(node * node)
    return [first, second], [x, y, p, q]


def test_what_a_result_needs_is_kept_through_all_cells():
    drafts, (_, y, p, _) = chain()
    kept = needed(drafts, [first_wire(drafts[1])])
    assert kept[0].outputs == {1: 0}
    assert kept[0].feeds == {1: 0}
    assert [node for node, _ in kept[0].draft.feeds] == [y]
    assert kept[1].arguments == (0,)
    assert [node for node, _ in kept[1].draft.operands] == [p]


def test_a_cell_that_nobody_needs_is_dropped_and_the_others_count_on():
    drafts, _ = chain()
    assert list(needed(drafts, [first_wire(drafts[0])])) == [0]
    assert needed(drafts, []) == {}
    drafts[1].outputs.clear()
    drafts[1].losses.append(("loss", drafts[1].operands[1][0]))
    drafts = [Draft("none", 0), *drafts]
    drafts[1].number, drafts[2].number = 1, 2
    kept = needed(drafts, [])
    assert {old: each.draft.number for old, each in kept.items()} == {1: 0, 2: 1}
    assert kept[1].outputs == {2: 0}
    assert kept[1].feeds == {0: 0, 1: 1}
    assert kept[2].arguments == (1,)


def test_elements_of_a_sequence_are_kept_together():
    axis = ragged("list")
    a, b = (input_node(T, axis) for _ in range(2))
    source = Draft("source", 0)
    x = input_node(T)
    source.feeds.append(reads(x))
    wires = [source.output(node)[1] for node in (x + x, x * x)]
    reader = Draft("reader", 1, sequences=[(axis, [(a, wires[0]), (b, wires[1])])])
    other = ragged("other")
    c = input_node(T, other)
    reader.sequences.append((other, [(c, Flow())]))
    wire = reader.output(ops.segment_sum(b))[1]
    reader.output(ops.segment_sum(c))
    kept = needed([source, reader], [wire])
    assert kept[0].outputs == {0: 0, 1: 1}
    assert (kept[1].sequences, kept[1].arguments) == ({0: 0}, (0,))


def test_marks_and_labels_go_with_their_metric():
    x, y, mark = (input_node(T) for _ in range(3))
    draft = Draft("cell", 0, feeds=[reads(y), reads(x), reads(mark)])
    draft.metrics.append(("m", x))
    draft.labels.append(0)
    draft.marks.append((0, 2))
    draft.keys.append(0)
    (kept,) = needed([draft], []).values()
    assert kept.feeds == {1: 0, 2: 1}
    assert (kept.draft.marks, kept.draft.labels, kept.draft.keys) == ([(0, 1)], [0], [])
