"""Examples that contain themselves are refused soon, and nothing else is."""

from typing import Any

import pytest

import foldbatch as fb
from foldbatch.blocks import tracer
from foldbatch.errors import ExampleError

ONE = fb.Scalar()
ADD = fb.Function(lambda a, b: a + b)


def sum_of(memo: bool | None, input_type: Any = fb.types.OBJECT) -> fb.Block:
    total = fb.ForwardDeclaration(input_type, "float32", "total", memo=memo)
    total.resolve_to(fb.OneOf(lambda x: isinstance(x, list), {False: ONE, True: fb.Map(total()) >> fb.Sum()}))
    return total()


@pytest.mark.parametrize("memo", [None, False, True])
def test_the_error_names_the_first_place_that_is_met_again(memo, monkeypatch):
    monkeypatch.setattr(tracer, "SHALLOW", 100)
    ring = [1, [2, 3]]
    ring[1].append([4, ring])
    with pytest.raises(ExampleError, match="a part that contains itself; cut the cycle") as caught:
        fb.compile(sum_of(memo), "reference").run([[1], [0, ring]])
    assert caught.value.where.endswith("at example 1 [1][1][2][1]")


def test_a_long_cycle_is_found_long_before_the_deepest_level(monkeypatch):
    monkeypatch.setattr(tracer, "SHALLOW", 100)
    monkeypatch.setattr(tracer, "DEEPEST", 5_000)
    ring: list[Any] = []
    last = ring
    for _ in range(299):
        last.append([])
        last = last[0]
    last.append(ring)
    with pytest.raises(ExampleError, match="a part that contains itself"):
        fb.compile(sum_of(None), "reference").run([ring])


def test_a_cycle_is_found_though_other_branches_end_and_tensors_differ(monkeypatch):
    monkeypatch.setattr(tracer, "SHALLOW", 100)
    down = fb.ForwardDeclaration((fb.types.OBJECT, "float32"), "float32", "down")
    state = fb.GetItem(1) >> fb.Function(lambda w: w / 2)
    left, right = (fb.AllOf(fb.GetItem(0) >> fb.GetItem(k), state) >> down() for k in (0, 1))
    choice = fb.GetItem(0) >> fb.InputTransform(lambda x: isinstance(x, list))
    down.resolve_to(fb.OneOf(choice, {False: fb.GetItem(1), True: fb.AllOf(left, right) >> ADD}))
    block = fb.AllOf(fb.Identity(), fb.FromTensor(1.0)) >> down()
    assert float(block.eval([[1, 2], 3])) == 1.0
    ring: list[Any] = [[1, 2]]
    ring.append([[3, 4], ring])
    with pytest.raises(ExampleError, match="a part that contains itself"):
        block.eval(ring)


def test_what_changes_as_it_is_read_is_no_cycle(monkeypatch):
    """An iterator is read on from call to call; so many levels are deep, and end."""
    monkeypatch.setattr(tracer, "SHALLOW", 100)
    count = fb.ForwardDeclaration(output_type="float32", name="count")
    more = fb.AllOf(count(), fb.FromTensor(1.0)) >> ADD
    count.resolve_to(fb.OneOf(lambda numbers: next(numbers, None) is None, {True: fb.Zeros([]), False: more}))
    program = fb.compile(count(), "reference")
    assert [float(program.run([iter(range(n))])[0]) for n in (0, 1, 1_000)] == [0.0, 1.0, 1000.0]


def test_deep_data_is_no_cycle(monkeypatch):
    monkeypatch.setattr(tracer, "SHALLOW", 100)
    data: Any = 1
    for _ in range(1_000):
        data = [data, data]
    assert fb.compile(sum_of(None), "reference").describe([data]).calls == 1_002
