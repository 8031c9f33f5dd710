"""What a walk cannot do is refused in one form, and nothing half noted is left."""

import re
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from unittest import mock

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import (
    ExampleError,
    FoldbatchError,
    GraphError,
    NewCellsWarning,
    TrainingError,
    WalkError,
)
from foldbatch.functions import notes
from foldbatch.program.variants import TRIES
from foldbatch.serve.service import Continuous
from tests.backends import lacking, needs_llvm

ZERO = np.zeros(4, "float32")


def sentence() -> fb.Program:
    linear, embed = fb.Linear(4, name="linear"), fb.Embedding(5, 4, name="embed")

    @fb.cell
    def step(v, word, *, N=0):
        return fb.ops.tanh(linear(v) + embed(word) + N)

    def walk(words: list[Any]) -> Any:
        h = fb.tensor(ZERO)
        for word in words:
            h = step(h, word)
        return h

    return fb.compile(walk, "numpy")


def test_a_bad_datum_is_refused_at_its_call_and_what_comes_next_is_right() -> None:
    program = sentence()
    right = list(program.run([[1, 2], [4]]))
    with pytest.raises(
        ExampleError, match=r"step\(word\) at example 1: expected int32 from 0 to 4, found int 9"
    ):
        program.run([[1, 2], [3, 9]])
    with pytest.raises(TypeError) as caught:
        program.run([[1], None])
    assert caught.value.__notes__ == ["foldbatch: in the walk of example 1"]
    np.testing.assert_array_equal(list(program.run([[1, 2], [4]])), right)


def test_what_is_no_operand_of_an_op_is_refused() -> None:
    program = fb.compile(lambda x: fb.tensor([0.0, 0.0]) + x, "numpy")
    with pytest.raises(WalkError, match="ops.add: expected values, numbers and arrays, found deque"):
        program.run([deque([1.0, 2.0])])


@pytest.mark.parametrize(
    "asks",
    [
        lambda text: text == "+",
        lambda text: text in ("+", "-"),
        bool,
        {"+": 1}.get,
        lambda text: text[0],
        len,
        list,
        lambda text: text.lower(),
        lambda text: str(text) == "+",
        lambda text: isinstance(text, str),
    ],
)
def test_a_cell_does_not_choose_by_a_text_that_it_is_given(asks) -> None:
    """A comparison would be false in all calls, as the cell's function runs once."""
    chosen = fb.cell(lambda h, text: h if asks(text) else -h)
    with pytest.raises(WalkError, match=r"\(text\): expected a tensor, .* can be a keyword-only argument"):
        fb.compile(lambda x: chosen(fb.tensor(x), "+"), "numpy").run([1.0])


def test_an_int_where_a_float_is_meant_is_told_how_to_be_one() -> None:
    """As data of JSON may have: 3 in one example, 3.5 in the others."""
    less = fb.cell(lambda h, y: h - y)
    with pytest.raises(FoldbatchError, match="float32 and int32") as caught:
        fb.compile(lambda y: less(fb.tensor(1.5), y), "numpy").run([0.5, 1])
    assert "the annotation y: 'float32' takes ints as floats" in caught.value.__notes__[0]


@pytest.mark.parametrize("asks", [lambda i: i in {1, 2}, {1: True}.get, lambda i: i + 1 in {2, 7}])
def test_numbers_are_looked_for_in_sets_and_dicts_by_what_they_are(asks) -> None:
    """A walk reads the number; where there is none it is refused, as by identity it would never be found."""
    program = fb.compile(lambda x: bool(asks(fb.ops.argmax(fb.tensor(x)))), "numpy")
    wanted = [True, asks(0) or False]
    assert program.run([[0.0, 1.0], [1.0, 0.0]]) == wanted
    assert [program.debug(x).result for x in ([0.0, 1.0], [1.0, 0.0])] == wanted
    chosen = fb.cell(lambda h, i: h if asks(i) else -h)
    for wrong in (
        lambda: fb.compile(lambda x: chosen(fb.tensor([1.0]), x), "numpy").run([1]),
        lambda: fb.Scalar("int32") >> fb.Function(lambda i: i if asks(i) else -i),
    ):
        with pytest.raises(FoldbatchError, match="expected a Python value, found a symbolic int32"):
            wrong()


def test_numbers_that_are_asked_for_first_where_nothing_is_told_of_it_are_read() -> None:
    """NumPy, and a bare `except`, catch what begins a walk anew."""

    def fill(x: Any) -> Any:
        filled = np.zeros(2)
        filled[0] = fb.ops.sum(fb.tensor(x))
        return filled

    def hides(x: Any) -> Any:
        try:
            return fb.tensor(float(fb.ops.sum(fb.tensor(x))))
        except:  # noqa: E722
            return fb.tensor(-1.0)

    for walk, wanted in (
        (fill, [3.0, 0.0]),
        (hides, 3.0),
        (lambda x: fb.ops.sum(fb.tensor(x)) in {3.0, 7.0}, True),
    ):
        np.testing.assert_array_equal(fb.compile(walk, "numpy").run([[1.0, 2.0]])[0], wanted)


def test_a_module_that_is_called_as_a_cell_can_be_the_walk() -> None:
    """Methods are told apart by their attributes, not by the names of their functions."""

    class Doubled(fb.Module):
        __call__, half = fb.cell(lambda self, x: x * 2.0), fb.cell(lambda self, x: x * 0.5)

    made = Doubled()
    for walk in made, lambda x: Doubled.__call__(made, made.half(made(fb.tensor(x)))):
        program = fb.compile(walk, "numpy")
        assert [program.run([1.5, 2.0]) for _ in range(3)] == [[3.0, 4.0]] * 3
        assert len(program.model.cells) <= 3


def test_values_of_other_examples_and_runs_are_refused() -> None:
    kept: list[Any] = []

    def walk(x: float) -> Any:
        kept.append(fb.tensor(x))
        return kept[0] + 1.0

    with pytest.raises(WalkError, match="expected values of the same example"):
        fb.compile(walk, "numpy").run([1.0, 2.0])


def test_tensors_that_came_by_no_argument_are_refused() -> None:
    """Those of another cell or block, kept in a variable, and the walk's values."""
    kept: list[Any] = []

    def keep(x: Any) -> Any:
        kept.append(x)
        return x

    first, second, keeping = fb.cell(keep), fb.cell(lambda x: x + kept[0]), fb.Function(keep)
    scalar, later = fb.Scalar(), fb.Function(lambda x: x + kept[0])
    blocks = fb.Record((fb.Map(scalar >> keeping) >> fb.Sum(), scalar >> later)), ([1.0], 2.0)
    for way, model, example, found in (
        ("cell", lambda x: (first(fb.tensor(x)), second(fb.tensor(x))), 1.0, "one kept from another cell"),
        ("block", *blocks, "one kept from another; make it an input"),
        ("value", lambda x: (keep(fb.tensor(x)), second(fb.tensor(x))), 1.0, "is given to it as an argument"),
    ):
        kept.clear()
        with pytest.raises(FoldbatchError, match=found):
            fb.compile(model, "numpy").run([example])
        assert kept, way


def test_numbers_are_not_there_where_nothing_is_computed() -> None:
    kept: list[Any] = []

    def walk(x: float) -> Any:
        value = fb.tensor(x)
        kept.append(value)
        return value if value > 0 else -value

    program = fb.compile(walk, "numpy")
    for refused in (program.plan, program.prepare):
        with pytest.raises(WalkError, match="bool: expected a walk that reads no numbers"):
            refused([1.0])
    assert program.debug(-2.0).result == 2.0
    assert program.run([1.0, -2.0]) == [1.0, 2.0]
    with pytest.raises(WalkError, match=r"program.debug\(example\)"):
        float(kept[0])


def test_an_index_of_a_list_is_of_no_single_element() -> None:
    for computed in (fb.ops.tanh, fb.Linear(2), lambda xs: xs[..., :2], lambda xs: xs):
        walk = fb.cell(lambda xs, *, computed=computed: fb.ops.segment_sum(computed(xs)[0]))
        with pytest.raises(FoldbatchError, match=r"x\[..., 0\] is of every element, ops.gather\(x, 0\) one"):
            fb.compile(lambda x, walk=walk: walk([fb.tensor(x)]), "numpy").run([[1.0, 2.0, 3.0]])


def test_a_subclass_of_tuple_is_a_tuple_in_a_cell_and_rows_of_lengths_are_no_index() -> None:
    class Span(tuple[Any, ...]):
        __slots__ = ()  # it has no constructor of its own

    summed = fb.cell(lambda span: span[0] + span[1])
    assert fb.compile(lambda x: summed(Span((fb.tensor(x), 1.0))), "numpy").run([1.0]) == [2.0]
    with pytest.raises(FoldbatchError, match="ops.gather: expected a symbolic tensor"):
        fb.compile(lambda x: fb.tensor(x)[[[0], [0, 1]]], "numpy").run([[1.0, 2.0]])


def test_calls_elsewhere_and_runs_in_a_walk_are_refused() -> None:
    program = sentence()
    cell = fb.cell(lambda x: x * 2.0)
    with pytest.raises(WalkError, match="expected a call of a cell in a walk"):
        cell(1.0)
    with pytest.raises(WalkError, match="a run of a program in it"):
        fb.compile(lambda words: program.run([words])[0], "numpy").run([[1]])


def test_a_walk_without_end_is_stopped() -> None:
    def walk(x: float) -> None:
        while True:
            fb.tensor(x)

    with pytest.raises(ExampleError, match="more than max_calls"):
        fb.compile(walk, "numpy", options={"max_calls": 1000}).run([1.0])


def test_results_of_other_structures_are_refused() -> None:
    def walk(x: float) -> Any:
        return (fb.tensor(x), 1) if x > 0 else fb.tensor(x)

    with pytest.raises(WalkError, match="walk at example 1: expected a result of"):
        fb.compile(walk, "numpy").run([1.0, -1.0])


def test_no_call_of_a_walk_raises_and_catches() -> None:
    """Python then looks through all generators around, and a sum of a recursion has one at each level."""
    events: list[str] = []

    def trace(frame: Any, event: str, arg: Any) -> Any:
        events.append(event)
        return trace

    def walk(x: float) -> Any:
        value = fb.tensor(x)
        sys.settrace(trace)
        value = double(value) + value * 2.0
        sys.settrace(None)
        return value

    double = fb.cell(lambda v: v + v)
    program, before = fb.compile(walk, "numpy"), sys.gettrace()
    program.run([1.0])
    events.clear()
    try:
        assert program.run([1.0]) == [4.0]
    finally:
        sys.settrace(before)
    assert "call" in events and "exception" not in events


def test_deep_recursion_runs_and_gives_the_limit_back() -> None:
    half = fb.cell(lambda h: h * 0.5 + 1.0)

    def walk(levels: int) -> Any:
        return half(walk(levels - 1)) if levels else fb.tensor(0.0)

    limit = sys.getrecursionlimit()
    assert fb.compile(walk, "numpy").run([50_000])[0] == 2.0
    assert sys.getrecursionlimit() == limit


def test_threads_take_turns() -> None:
    program, right = sentence(), []
    right += program.run([[1, 2, 3], [4]])
    wrong: list[Any] = []

    def run() -> None:
        for _ in range(5):
            found = program.run([[1, 2, 3], [4]])
            if not all(np.array_equal(a, b) for a, b in zip(found, right, strict=True)):
                wrong.append(found)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("engine", [e for e in ("numpy", "llvm") if not lacking(e)])
def test_a_cell_that_another_thread_calls_is_refused_there(engine: str) -> None:
    """Whether it is known or new: its calls could stand between two halves of one of the walk's own."""
    double, errors = fb.cell(lambda x: x * 2.0), list[WalkError]()

    def other(x: Any) -> None:
        with pytest.raises(WalkError, match=r": expected a call of a cell in a walk, found one") as refused:
            double(x)
        errors.append(refused.value)

    def walk(x: float) -> Any:
        thread = threading.Thread(target=other, args=[y := fb.tensor(x)])
        thread.start()
        thread.join()
        return double(y)

    program = fb.compile(walk, engine)
    assert [[*map(float, program.run([1.0, 2.0]))] for _ in range(3)] == [[2.0, 4.0]] * 3
    assert len(errors) == 6


def test_what_was_learnt_before_changes_no_bits() -> None:
    short, long = [[1, 2], [3]], [[4, 0, 1, 2], []]
    one, other = sentence(), sentence()
    one.warm(long)
    one.warm(short)
    other.warm(short)
    other.warm(long)
    for name in one.params:
        other.params[name] = one.params[name]
    for a, b in zip(one.run(short), other.run(short), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_module_is_a_walk_and_names_its_parameters() -> None:
    class Twice(fb.Module):
        def __init__(self) -> None:
            self.first, self.rest = fb.Linear(3), [fb.Linear(3)]
            self.start = fb.Parameter([2], init=1.0)

        def __call__(self, x: list[float]) -> Any:
            return self.rest[0](self.first(fb.tensor(x) + self.start))

    class Both(fb.Module):
        def __init__(self) -> None:
            self.twice, self.end = Twice(), fb.Parameter([3], name="own")

        def __call__(self, x: list[float]) -> Any:
            return self.twice(x) + self.end

    names = ["first.weight", "first.bias", "rest.0.weight", "rest.0.bias", "start"]
    for module, expected in (Twice(), names), (Both(), [*(f"twice.{name}" for name in names), "own"]):
        program = fb.compile(module, "numpy")
        program.warm([[1.0, 2.0]])
        assert sorted(program.params) == sorted(expected)


def test_a_parameter_that_a_walk_returns_is_refused_as_it_is_no_value() -> None:
    start = fb.Parameter([2], init=1.0, name="start")
    with pytest.raises(WalkError, match="found the parameter start; return fb.tensor"):
        fb.compile(lambda _: start, "numpy").run([0])


def test_a_walk_that_brings_a_new_cell_in_each_batch_is_told() -> None:
    @fb.cell
    def called(x, *, function):
        return function(x)

    program = fb.compile(lambda x: called(x, function=lambda y: y), "numpy")
    for _ in range(TRIES - 1):
        assert program.run([1.0]) == [1.0]
    with pytest.warns(NewCellsWarning, match="expected calls of cells that are known after some batches"):
        program.run([1.0])


def test_layers_that_a_walk_makes_for_each_example_are_told_at_the_second_batch() -> None:
    program = fb.compile(lambda x: fb.Linear(2)(fb.tensor(x)), "numpy")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program.run([[1.0, 2.0]] * 8)
    with pytest.warns(NewCellsWarning, match="found 16 new parameters for 8 examples; make layers") as told:
        for _ in range(3):
            program.run([[1.0, 2.0]] * 8)
    assert len(told) == 1
    modules: dict[str, Any] = {}  # that are made when they are first met are no mistake

    def walk(name: str) -> Any:
        return modules.setdefault(name, fb.Linear(2, name=name))(fb.tensor([1.0]))

    named = fb.compile(walk, "numpy")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for batch in ("aab", "abbac", "abcdab", "aaaa"):
            named.run(list(batch))
    assert len(named.params) == 8


def test_values_are_compared_by_their_elements() -> None:
    def walk(x: list[float]) -> Any:
        a, b = fb.tensor(x), fb.tensor([1.0, 2.0])
        return a == b, a != b, a in (a, b), len({a, b})

    program = fb.compile(walk, "numpy")
    for run in (lambda: program.run([[1.0, 3.0]])[0], lambda: program.debug([1.0, 3.0]).result):
        equal, other, same, two = run()
        assert (equal.tolist(), other.tolist(), same, two) == ([True, False], [False, True], True, 2)
    asks = fb.compile(lambda x: "same" if fb.tensor(x) == fb.tensor(2.0) else "other", "numpy")
    assert asks.run([1.0, 2.0]) == ["other", "same"]


def test_metrics_of_a_name_have_one_shape() -> None:
    program = fb.compile(lambda x: fb.metric("m", fb.tensor(x)), "numpy")
    expected = r"fb.metric 'm': expected shape \(1,\), as elsewhere under this name, found shape \(2,\); use"
    with pytest.raises(WalkError, match=expected):
        program.run([[1.0], [1.0, 2.0]], metrics=True)


def test_nests_without_an_end_are_refused_in_cells_and_leave_debug_as_it_was() -> None:
    def endless(x: Any) -> Any:
        return (made := [x], made.append((made,)))[0]

    whole = fb.cell(lambda x: x[0] if isinstance(x, list | tuple) else endless(x))
    for walk in (lambda x: whole(fb.tensor(x)), lambda x: whole(endless(fb.tensor(x)))):
        program = fb.compile(walk, "numpy")
        for run in (lambda xs: program.run(xs), lambda xs: program.debug(xs[0])):
            with pytest.raises(
                WalkError, match="expected a nest of 100 levels at most, found one that holds"
            ):
                run([1.0])
    assert fb.compile(lambda x: fb.tensor(x) * 2.0, "numpy").debug(1.0).result == 2.0


@pytest.mark.parametrize(
    "label, found", [(lambda y: y + 1, "a tensor of int32"), (lambda y: [y], "list of 1")]
)
def test_a_label_of_a_cell_is_an_object_that_it_is_given(label: Any, found: str) -> None:
    cell = fb.cell(lambda y: fb.metric("m", y, label=label(y)))
    expected = f"fb.metric label: expected an object that the cell is given, found {found}; give"
    with pytest.raises(WalkError, match=expected):
        fb.compile(lambda _: cell(3), "numpy").run([None])


@pytest.mark.parametrize("engine", ["numpy", pytest.param("llvm", marks=needs_llvm)])
def test_a_number_that_a_cell_is_given_labels_its_metric(engine: str) -> None:
    @fb.cell
    def scored(x: Any, number: Any, pair: Any) -> Any:
        fb.metric("number", x, label=number)
        fb.metric("second", x + number, label=pair[1])
        return x

    labels = [1, True, 2.5, np.int64(3), np.float32(0.5)]
    array = np.array([0.0, 0.0])

    def walk(i: int) -> Any:
        array[:] = i
        return scored(fb.tensor(float(i)), NUMBERS[i], (array, array))

    NUMBERS = [float(i) for i in range(5)]
    whole = fb.cell(lambda x, label: fb.metric("m", x, label=label))
    for run in range(2):
        found = fb.compile(lambda i: whole(fb.tensor(float(i)), labels[i]), engine).run(
            range(5), metrics=True
        )
        assert [*map(repr, found.metrics["m"].labels)] == [*map(repr, labels)], run
    found = fb.compile(walk, engine).run(range(5), metrics=True)
    assert found.metrics["number"].labels == NUMBERS
    assert [label.tolist() for label in found.metrics["second"].labels] == [[i, i] for i in range(5)]
    assert fb.compile(walk, engine).debug(3).metrics["number"] == [(3.0, 3.0)]


@pytest.mark.parametrize("engine", ["numpy", pytest.param("llvm", marks=needs_llvm)])
def test_a_label_of_two_classes_may_be_a_bool(engine: str) -> None:
    scores = fb.cell(lambda x, label: fb.loss(fb.ops.cross_entropy(x, label)))
    walks = [
        lambda e: scores(fb.tensor(e[0]), e[1]),
        lambda e: fb.loss(fb.ops.cross_entropy(fb.tensor(e[0]), e[1])),
        lambda e: fb.loss(fb.ops.cross_entropy(fb.tensor(e[0]), fb.tensor(e[1]))),
    ]
    for walk in walks:
        program = fb.compile(walk, engine)
        for kind in (bool, np.bool_):
            bools = program.run([([1.0, 2.0], kind(0)), ([0.5, 3.0], kind(1))], losses=True)
            assert bools.loss == program.run([([1.0, 2.0], 0), ([0.5, 3.0], 1)], losses=True).loss
        with pytest.raises(FoldbatchError, match="expected integer labels"):
            program.run([([1.0, 2.0, 3.0], True)], losses=True)


def test_a_name_of_a_cell_shows_the_keywords_that_tell_it_from_others() -> None:
    @fb.cell
    def gate(a: Any, b: Any, *, op: str, scale: float = 1.0) -> Any:
        return (a - b if op == "xor" else a * b) * scale

    kept = list[Any]()

    def walk(pair: Any) -> Any:
        a, b = map(fb.tensor, pair)
        kept.append(gate(a, b, op="xor"))
        return gate(kept[-1], gate(a, b, op="and", scale=0.5), op="and")

    program = fb.compile(walk, "numpy")
    program.run([(1.0, 2.0)])
    names = ["gate(op=and)", "gate(op=and, scale=0.5)", "gate(op=xor)", "tensor"]
    assert sorted(cell.name for cell in program.model.cells) == names
    text = str(program.describe([(1.0, 2.0)]))
    assert all(name in text for name in names)
    leaks = fb.compile(lambda pair: gate(kept[0], fb.tensor(pair[0]), op="xor"), "numpy")
    with pytest.raises(WalkError, match=r"^gate\(op=xor\) at example 0: expected values of the same example"):
        leaks.run([(1.0, 2.0)])


def test_a_label_is_noted_as_it_is() -> None:
    in_block = fb.Record((fb.Scalar(), fb.InputTransform(lambda x: x))) >> fb.Metric("block")

    def walk(x: float) -> None:
        labels: list[Any] = [np.array([x]), [x], {0: [x]}]
        for label in labels:
            fb.metric("walk", fb.tensor(x), label)
            in_block((x, label))
        labels[0][:] = labels[1][0] = labels[2][0][0] = -1.0

    found = fb.compile(walk, "numpy").run([1.0, 2.0], metrics=True).metrics
    for name in ("walk", "block"):
        assert found[name].labels == [label for x in (1.0, 2.0) for label in ([x], [x], {0: [x]})]


def test_swapped_arguments_of_an_update_are_refused() -> None:
    linear = fb.Linear(1)
    program = fb.compile(lambda x: fb.loss(linear(fb.tensor(x))[0]), "numpy")
    _, gradients = program.value_and_grad([[1.0]])
    with pytest.raises(TrainingError, match="gradients: expected arrays by parameter name, found"):
        fb.Adam().update(gradients, program.params)


def test_values_are_returned_in_tuples_and_lists_alone() -> None:
    for wrong in (lambda x: {fb.tensor(x)}, lambda x: (fb.tensor(x) for _ in "ab")):
        with pytest.raises(WalkError, match="walk at example 0: expected values, tuples, lists, dicts"):
            fb.compile(wrong, "numpy").run([1.0])
    assert fb.compile(lambda x: {x}, "numpy").run([1.0]) == [{1.0}]


def test_what_users_of_pytorch_write_first_is_answered() -> None:
    def filled(x):
        array = np.zeros(2)
        array[0] = x
        return array

    def averaged(xs):
        return fb.ops.segment_sum(xs) / xs.shape[0]

    start, gru = fb.Parameter([2], init=0.5, name="start"), fb.GRUCell(2, name="gru")
    inside, given = fb.cell(lambda x: gru(x, start)[1]), fb.cell(lambda x, h: gru(x, h)[1])
    both = fb.compile(lambda x: (inside(fb.tensor(x)), given(fb.tensor(x), start)), "numpy").run([[1.0, 2.0]])
    assert (both[0][0] == both[0][1]).all()
    program = fb.compile(lambda x: f"{fb.tensor(x):.1f}", "numpy")
    assert program.run([0.25]) == ["0.2"]
    for wrong, said in (
        (lambda: fb.Adam({}, lr=0.1), r"update\(program.params, gradients\) takes the parameters"),
        (lambda: fb.Linear(2)(ZERO), "call it in a function given to foldbatch.compile"),
        (lambda: fb.compile(lambda x: fb.cell(filled)(y for y in [x]), "numpy").run([1.0]), "a list of it"),
        (lambda: fb.compile(fb.cell(filled), "numpy").run([1.0]), "ops.stack to fill an array"),
        (lambda: fb.compile(lambda x: fb.ops.stack([]), "numpy").run([1.0]), "expected at least one tensor"),
        (
            lambda: fb.compile(lambda x: fb.cell(averaged)([fb.tensor(x)]), "numpy").run([[1.0]]),
            r"shape\[-1\] is",
        ),
        (lambda: fb.compile(fb.Embedding(3, 2)).run(["a"]), "expected tensors, found object"),
        (
            lambda: fb.compile(lambda x: fb.Embedding(3, 2)(x)).run(["a"]),
            "ids, found object of an example; read",
        ),
        (lambda: fb.Parameter(ZERO), r"found float32 array of shape \(4,\); numbers are Parameter"),
    ):
        with pytest.raises(FoldbatchError, match=said):
            wrong()


def test_values_are_what_a_cell_is_annotated_with() -> None:
    @fb.cell
    def total(xs: list["float32[3]"]):  # noqa: F821
        return fb.ops.segment_sum(xs)

    @fb.cell
    def twice(x: "float32[3]"):  # noqa: F821
        return x * 2

    for called, where in ((lambda x: total([x]), r"total\(xs\)\[0\]"), (twice, r"twice\(x\)")):
        expected = where + r": expected float32\[3\], as annotated, found float32\[2\]; mend"
        with pytest.raises(WalkError, match=expected):
            fb.compile(lambda x, called=called: called(fb.tensor(x)), "numpy").run([[1.0, 2.0]])


def test_a_walk_reads_an_example_once() -> None:
    """Also one that brings cells: its examples may be iterators."""
    program = fb.compile(lambda xs: [fb.tensor(x) * 2.0 for x in xs], "numpy")
    tree = fb.trees.parse_brackets("(1 (2 a) (3 b))", labels=int)
    for _ in range(2):
        assert program.run([iter([1.0, 2.0]), iter([]), iter([3.0])]) == [[2.0, 4.0], [], [6.0]]
    mixed = fb.compile(
        lambda x: fb.tensor(float(x.label)) if x is tree else fb.tensor(next(x)) + 1.0, "numpy"
    )
    mixed.run([tree])
    assert mixed.run([tree, iter([2.5])]) == [1.0, 3.5]  # the tree, known before, is walked again


def test_what_can_be_read_once_is_refused_where_a_walk_begins_anew() -> None:
    def total(numbers: Any) -> Any:
        x = next(numbers, None)
        return fb.tensor(0.0) if x is None else total(numbers) + fb.tensor(x)

    deep = fb.compile(lambda example: total(example["numbers"]), "numpy")
    assert deep.run([{"numbers": iter([1.0] * 5)}]) == [5.0]
    expected = (
        "walk at example 0: expected data that can be read again, as a walk this deep begins anew, found"
    )
    with nullcontext() if notes.IN_PLACE else pytest.raises(WalkError, match=expected):
        deep.run([{"numbers": iter([1.0] * 5000)}])
    assert deep.run([{"numbers": iter([1.0] * 5000)}]) == [5000.0]  # the next run begins in depth


def test_a_batch_of_very_many_calls_walks_no_example_twice() -> None:
    program = fb.compile(lambda xs: [fb.tensor(x) if x < 4 else fb.tensor(x) + 1.0 for x in xs], "numpy")
    with mock.patch.object(notes, "MAX_NOTED_NUMBERS", 2):
        found = program.run([iter([1.0, 2.0, 3.0]), iter([4.0, 5.0]), iter([0.5])])
    assert found == [[1.0, 2.0, 3.0], [5.0, 6.0], [0.5]]


def test_what_a_refused_batch_has_shown_is_not_learnt() -> None:
    embed, linear = fb.Embedding(5, 4, name="embed"), fb.Linear(4, name="linear")

    def walk(words: list[Any]) -> Any:
        h = embed(words[0])
        return linear(h) if len(words) > 1 else h

    program = fb.compile(walk, "numpy")
    right, model = program.run([[1], [2]]), program.model
    with pytest.raises(ExampleError, match="at example 1: expected int32 from 0 to 4, found int 9"):
        program.run([[1], [9, 9]])
    assert program.model is model
    assert list(program.params) == ["embed.weight"]
    np.testing.assert_array_equal(program.run([[1], [2]]), right)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_what_ends_a_walk_in_the_middle_leaves_nothing_behind(error: type[BaseException]) -> None:
    program = sentence()
    right, model = list(program.run([[1, 2], [4]])), program.model

    def words() -> Any:
        yield 3
        raise error

    with pytest.raises(error):
        program.run([[1], words(), [2]])
    assert program.model is model
    np.testing.assert_array_equal(list(program.run([[1, 2], [4]])), right)


def test_a_recursion_without_an_end_is_the_error_of_its_example_alone():
    """Other examples have their results, and the next batch runs."""

    def endless(n):
        return endless(n + 1)

    def walk(number):
        return endless(0) if number == 7 else float(fb.tensor(number / 2)) > 0.6

    program = fb.compile(walk)
    right = list(program.run([1, 2]))
    one, error, other = program.run([1, 7, 2], return_exceptions=True)
    assert [one, other] == right == list(program.run([1, 2]))
    assert isinstance(error, RecursionError)
    with pytest.raises(RecursionError) as raised:
        program.run([1, 2, 7])
    assert raised.value.__notes__ == ["foldbatch: in the walk of example 2"]
    with Continuous(program) as continuous:
        answers = [continuous.ask(word) for word in (1, 7, 2)]
        assert isinstance(answers[1].exception(20), RecursionError)
        assert [answers[0].result(20), answers[2].result(20)] == right


def test_a_recursion_too_deep_tells_what_is_called_again(monkeypatch):
    monkeypatch.setattr(notes, "DEEP", 5_000)
    half = fb.cell(lambda x: x * 0.5)

    def visit(x):
        return half(fb.tensor(x) if isinstance(x, float) else visit(x[0]))

    endless = []
    endless.append(endless)
    with pytest.raises(RecursionError) as raised:
        fb.compile(visit, "numpy").run([[1.0], endless])
    example, again = raised.value.__notes__
    assert example == "foldbatch: in the walk of example 1"
    assert re.search(r"visit \(test_refusals.py:\d+\) is called again with what it was given", again)


def test_a_walk_may_handle_the_error_of_a_datum_as_any_other():
    """It is raised at the call, in whatever way the batch runs; what is noted of that call is taken back."""
    table, pair = fb.Embedding(5, 2), fb.Linear(2)
    known = fb.cell(lambda word, other: pair(table(word) + table(other)))

    def walk(words):
        try:
            return known(*words)
        except fb.errors.ExampleError as error:
            return known(0, 0) if "found int 7" in str(error) else known(1, 1)

    examples = [(1, 2), (3, 7), (9, 4), (4, 4)]
    found = fb.compile(walk).run(examples)
    np.testing.assert_array_equal(found, fb.compile(walk).run([(1, 2), (0, 0), (1, 1), (4, 4)]))
    for number, example in enumerate(examples):
        np.testing.assert_allclose(found[number], fb.compile(walk).run([example])[0], rtol=1e-6)


def test_numbers_and_lists_of_values_are_no_losses_and_no_values() -> None:
    linear = fb.Linear(2, name="linear")

    def walk(x: Any) -> Any:
        return fb.loss(x([linear(fb.tensor([1.0, 2.0])) for _ in range(2)]))

    cases = [
        (lambda h: np.mean(np.stack(h)), None),
        (lambda h: 0.0, None),  # a sum of no values
        (
            lambda h: np.mean(h),
            r"NumPy \(_mean\): expected a value, found a list of values; make one of them",
        ),
        (lambda h: float(np.sum(h[0])), "fb.loss: expected a value, found float .* a number learns nothing"),
        (
            lambda h: np.asarray(h).sum(),
            "fb.loss: expected a value, found float32 .*; compute it with fb.ops",
        ),
    ]
    for make, message in cases:
        program = fb.compile(walk, "numpy")
        if message is None:
            program.value_and_grad([make, cases[0][0]])
            assert len(program.params) == 2
        else:
            with pytest.raises(WalkError, match=message):
                program.value_and_grad([make])


@pytest.mark.parametrize(
    ("number", "fix"), [(2**31, "declare int64"), (1e300, "declare float64, or scale the data")]
)
def test_a_number_that_its_type_does_not_hold_is_named(number: float, fix: str) -> None:
    """What `tensor` brings in is told of as it was given."""
    found = re.escape(f"found {type(number).__name__} {number}; {fix}")
    with pytest.raises(ExampleError, match=found):
        fb.compile(lambda x: fb.tensor(x), "numpy").run([number])


@pytest.mark.parametrize("door", ["cell", "op", "result", "annotation"])
def test_numbers_of_two_dtypes_are_refused_with_the_way_to_read_ints_as_floats(door: str) -> None:
    total = fb.cell(lambda xs: fb.ops.segment_sum(xs))

    @fb.cell
    def floats(xs: list["float32"]) -> Any:  # noqa: F821
        return fb.ops.segment_sum(xs)

    walks: dict[str, Any] = {
        "cell": lambda numbers: total([fb.tensor(x) for x in numbers]),
        "op": lambda numbers: fb.ops.segment_sum([fb.tensor(x) for x in numbers]),
        "result": lambda numbers: fb.tensor(numbers[0]),
        "annotation": lambda numbers: floats([fb.tensor(x) for x in numbers]),
    }
    program = fb.compile(walks[door], "numpy")
    fix = r"; fb.tensor\(x, 'float32'\) reads ints as floats, ops.cast\(value, 'float32'\) converts what was computed"
    with pytest.raises(WalkError, match=f"expected .*int32.*{fix}|expected .*float32.*{fix}"):
        program.run([[1, 2.5], [2.5, 2]])
    mended = fb.compile(lambda numbers: total([fb.tensor(x, "float32") for x in numbers]), "numpy")
    assert mended.run([[1, 2.5], [2.5, 2]]) == [3.5, 4.5]


def test_a_list_annotated_as_of_tuples_of_one_item_says_how_that_is_written() -> None:
    @fb.cell
    def dropped(xs: list[("float32",)]) -> Any:  # noqa: F821
        return fb.ops.segment_sum(xs[0])

    @fb.cell
    def written(xs: list[tuple["float32"]]) -> Any:  # noqa: F821
        return fb.ops.segment_sum(xs[0])

    with pytest.raises(WalkError, match=r"found tuple of 1; annotate it as list\[tuple\[...\]\]"):
        fb.compile(lambda xs: dropped([(fb.tensor(x),) for x in xs]), "numpy").run([[1.0]])
    program = fb.compile(lambda xs: written([(fb.tensor(x),) for x in xs]), "numpy")
    assert program.run([[], [1.0, 2.5]]) == [0.0, 3.5]


BY_HAND = {
    "negative": lambda kind: kind(-1),
    "missing": lambda kind: kind.__new__(kind),
    "no number": lambda kind: kind(None),
    "too large": lambda kind: kind(1 << 70),
    "of no run": lambda kind: kind(1 << 40),
}
READ_BY_HAND: dict[str, Callable[[Any, Any], Any]] = {
    "cell": lambda x, y: add(x, y),
    "list": lambda x, y: total([x, y]),
    "tuple": lambda x, y: first((x, y)),
    "dict": lambda x, y: keyed({"x": x, "y": y}),  # whose calls no compiled code does
    "operator": lambda x, y: x + y,
    "result": lambda _, y: y,
    "results": lambda x, y: [x, y],
    "number": lambda x, y: float(y) and x,
}


@fb.cell
def add(x: Any, y: Any) -> Any:
    return x + y


@fb.cell
def total(xs: Any) -> Any:
    return fb.ops.segment_sum(xs)


@fb.cell
def first(pair: Any) -> Any:
    return pair[1] - pair[0]


@fb.cell
def keyed(pair: Any) -> Any:
    return pair["y"] - pair["x"]


@pytest.mark.parametrize("engine", ["numpy", pytest.param("llvm", marks=needs_llvm)])
@pytest.mark.parametrize("made", BY_HAND)
@pytest.mark.parametrize("read", READ_BY_HAND)
def test_values_that_no_call_has_returned_are_refused_by_name(engine: str, made: str, read: str) -> None:
    make, use = BY_HAND[made], READ_BY_HAND[read]

    def walk(example: tuple[float, bool]) -> Any:
        x = fb.tensor(example[0])
        other = fb.tensor(2.0)
        return use(x, make(type(x)) if example[1] else other)

    program = fb.compile(walk, engine)
    right = program.run([(1.0, False), (3.0, False)])
    for _ in range(2):
        for batch in ([(1.0, True)], [(1.0, False), (3.0, True)]):
            with pytest.raises(WalkError, match=r"one made by hand|one kept from another example or run"):
                program.run(batch)
        np.testing.assert_array_equal(program.run([(1.0, False), (3.0, False)]), right)
    if read not in ("result", "results", "number"):
        with pytest.raises(WalkError, match="one made by hand; let a call return it"):
            program.debug((1.0, True))


def test_of_an_array_that_numpy_fills_with_a_symbol_our_error_is_told_and_the_users_stays() -> None:
    @fb.cell
    def filled(x: "float32") -> Any:  # noqa: F821
        array = np.zeros(2)
        array[0] = x
        return fb.tensor(array)

    @fb.cell
    def explained(x: "float32") -> Any:  # noqa: F821
        try:
            return float(x)
        except GraphError as error:
            raise ValueError("no array element is a number yet") from error

    with pytest.raises(GraphError, match="expected a Python value, found a symbolic float32"):
        fb.compile(lambda x: filled(x), "numpy").run([1.0])
    with pytest.raises(ValueError, match="no array element is a number yet"):
        fb.compile(lambda x: explained(x), "numpy").run([1.0])


@fb.cell
def scored(x: Any) -> None:
    fb.loss(fb.ops.sum(x))


def test_a_number_that_stands_for_no_value_is_refused_in_a_result() -> None:
    """A call that returns nothing takes a number, too."""

    def walk(example: tuple[float, bool]) -> Any:
        x = fb.tensor(example[0])
        scored(x)
        return type(x)(x.n + 1) if example[1] else x

    program = fb.compile(walk, "numpy")
    for _ in range(2):
        with pytest.raises(WalkError, match="one made by hand; let a call return it"):
            program.value_and_grad([(1.0, False), (3.0, True)])
        assert program.value_and_grad([(1.0, False)])[0] == 1.0
