"""Tracing: depth, threads, re-entrance, and errors that find their place in the data."""

import gc
import pickle
import re
import threading
import time
import traceback
import tracemalloc
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.blocks import tracer
from foldbatch.blocks.lower import depth
from foldbatch.errors import ExampleError, ExampleKeyError, ExampleTypeError
from foldbatch.scheduler.trace import Trace
from foldbatch.trees import Tree

ONE = fb.Scalar()


def chain_model() -> fb.Block:
    """x + tanh of what is below: a chain as deep as its data."""
    chain = fb.ForwardDeclaration(output_type="float32", name="chain")
    layer = fb.Parameter(fb.types.TensorType(()), 0.5, "w")
    node = {"x": ONE, "next": chain()} >> fb.Function(lambda x, y: x + layer * ops.tanh(y))
    chain.resolve_to(fb.OneOf(lambda node: "next" in node, {False: fb.GetItem("x") >> ONE, True: node}))
    return chain()


def chain_of(length: int) -> dict[str, Any]:
    data: dict[str, Any] = {"x": 1.0}
    for i in range(length - 1):
        data = {"x": i % 3 - 1.0, "next": data}
    return data


def parts_of(trace: Trace) -> list[Any]:
    integers = [*trace.calls, *trace.levels, *(x for parts in trace.elements for x in parts)]
    feeds = [x.tolist() for columns in trace.feeds for x in columns]
    return [[x.tolist() for x in integers], feeds, trace.labels, trace.values, trace.result]


@pytest.mark.parametrize("depth", [0, 1, 2, 7])
def test_generators_go_on_where_plain_functions_may_go_no_deeper(depth, monkeypatch):
    """A tree whose branches are longer and shorter than that; with collected values and metrics."""
    tree = fb.ForwardDeclaration(output_type="float32", name="tree")
    kids = fb.GetItem(1) >> fb.Map(tree()) >> fb.Sum()
    both = fb.AllOf(fb.GetItem(0) >> ONE, kids) >> fb.Function(lambda a, b: a - b)
    tree.resolve_to(
        both >> fb.AllOf(fb.Identity() >> fb.blocks.Collect(), fb.Metric("seen")) >> fb.GetItem(0)
    )
    block = fb.blocks.Collected(tree())

    def grown(number: int, height: int) -> list[Any]:
        return [number, [grown(2 * number + i, height - 1 - i) for i in range(min(height, 2))]]

    examples = [grown(1, 5), [3, []], grown(2, 9)]
    tracer = fb.compile(block, "reference").lowered
    expected = [parts_of(trace) for trace in tracer.trace_all(examples, range(3))]
    monkeypatch.setattr("foldbatch.blocks.lower.depth_left", lambda: depth)
    assert [parts_of(trace) for trace in tracer.trace_all(examples, range(3))] == expected


def test_half_of_the_stack_is_left_to_functions_of_the_user():
    """One that calls itself 300 times meets no other stack than without foldbatch."""

    def countdown(n: int) -> int:
        return 0 if n == 0 else countdown(n - 1)

    is_node = DESCENTS[1][1]
    chain = fb.ForwardDeclaration(output_type="float32", name="chain")
    end = fb.InputTransform(lambda _: countdown(300)) >> ONE
    chain.resolve_to(fb.OneOf(is_node, {True: fb.GetItem(0) >> chain(), False: end}))
    program = fb.compile(chain(), "reference")
    assert program.run([nested_list(length) for length in (2, 300, 600, 5000)]) == [0.0] * 4


def test_the_first_example_that_does_not_fit_is_told_of_and_none_is_read_twice_before():
    program = fb.compile(fb.GetItem("x") >> fb.Map(fb.Scalar("int32")) >> fb.Sum(), "reference")
    examples = [{"x": iter([1, 2])}, {"x": [3]}, {"x": [4, "four"]}, {}]
    with pytest.raises(ExampleTypeError, match=r"at example 2 .*\[1\]"):
        program.run(examples)
    with pytest.raises(ExampleKeyError, match="at example 1"):
        program.run([{"x": iter([1, 2])}, {}, {"x": ["one"]}])


def test_data_of_two_examples_that_do_not_fit_in_one_array_are_read_one_by_one():
    """NumPy makes floats of signed and unsigned integers."""
    program = fb.compile(fb.Map(fb.Scalar("int64")) >> fb.Sum(), "reference")
    assert program.run([[np.uint64(5)], [np.int64(-1)]]) == [5, -1]
    with pytest.raises(ExampleTypeError, match="at example 1"):
        program.run([[np.uint64(5)], [0.5]])


def test_so_many_calls_that_one_record_is_full_go_on_in_another(monkeypatch):
    monkeypatch.setattr("foldbatch.blocks.recorder.FULL_RECORD", 3)
    program = fb.compile(fb.Map(ONE) >> fb.Sum(), "reference")
    examples = [[float(i)] * (i % 4) for i in range(9)]
    assert program.run(examples) == [sum(example) for example in examples]
    with pytest.raises(ExampleTypeError, match="at example 7"):
        program.run([*examples[:7], ["seven"], *examples[8:]])


def test_a_star_of_20_000_children_is_two_levels():
    cell = fb.ChildSumTreeLSTM(2)
    star = fb.ForwardDeclaration(output_type=(2, 2), name="star")
    star.resolve_to({"x": fb.Vector(2), "kids": fb.Map(star())} >> cell)
    program = fb.compile(
        star() >> fb.GetItem(0) >> fb.AllOf(fb.Identity(), fb.Function(ops.sum) >> fb.Loss())
    )
    leaf = {"x": [0.5, -0.5], "kids": []}
    examples = program.prepare([{"x": [1, 2], "kids": [dict(leaf) for _ in range(20_000)]}, leaf])
    report = program.describe(examples)
    assert (report.calls, report.steps) == (20_004, 3)  # leaves, the root, losses
    results = program.run(examples)
    assert np.isfinite(results[0][0]).all()
    assert depth(program.model, *program._trace_all([examples[0]])) == 3
    _, gradients = program.value_and_grad(examples)
    assert all(np.isfinite(g).all() for g in gradients.values())


def descent_of(is_node: Callable[[Any], bool]) -> fb.Block:
    """1 + tanh of what is below, and 1 at the end: a chain as deep as its data nests."""
    chain = fb.ForwardDeclaration(output_type="float64", name="chain")
    w = fb.Parameter(fb.types.TensorType((), "float64"), 0.5, "w")
    node = fb.GetItem(0) >> chain() >> fb.Function(lambda y: 1 + w * ops.tanh(y))
    end = fb.InputTransform(lambda _: 1.0) >> fb.Scalar("float64")
    chain.resolve_to(fb.OneOf(is_node, {True: node, False: end}))
    return chain() >> fb.AllOf(fb.Identity(), fb.Loss())


def chain_tree(length: int) -> Tree:
    return Tree([*range(1, length), -1])


def nested_list(length: int) -> Any:
    data: Any = 0
    for _ in range(length - 1):
        data = [data]
    return data


DESCENTS = [(chain_tree, lambda node: not node.is_leaf), (nested_list, lambda x: isinstance(x, list))]


@pytest.mark.slow
@pytest.mark.parametrize(("make", "is_node"), DESCENTS[1:], ids=["list"])
def test_data_nested_20_000_deep_runs_and_is_differentiated(make, is_node):
    length = 20_000
    program = fb.compile(descent_of(is_node))
    prepared = program.prepare([make(length)])
    value, slope = 1.0, 0.0
    for _ in range(length - 1):
        value, slope = 1 + 0.5 * np.tanh(value), np.tanh(value) + 0.5 * (1 - np.tanh(value) ** 2) * slope
    assert depth(program.model, *program._trace_all([prepared[0]])) == length - 1
    assert float(program.run(prepared)[0][0]) == pytest.approx(value)
    loss, gradients = program.value_and_grad(prepared)
    assert (loss, float(gradients["w"])) == (pytest.approx(value), pytest.approx(slope))


@pytest.mark.parametrize(("make", "is_node"), DESCENTS[1:], ids=["list"])
def test_tracing_deep_data_takes_a_few_hundred_bytes_a_level(make, is_node):
    """While it runs; what is left of it is a few numbers a call."""
    length = 5_000
    example, program = make(length), fb.compile(descent_of(is_node), backend="reference")
    program.prepare([make(2)])
    tracemalloc.start()
    try:
        trace = program.lowered.trace_all([example], [0])[0]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert trace.size == length + 1  # and the loss
    assert peak < 700 * length
    assert len(pickle.dumps(trace)) < 40 * length


def test_an_error_deep_in_a_chain_is_found_and_told_in_short():
    data = chain_of(30_000)
    node = data
    while "next" in node:
        node = node["next"]
    node["x"] = "deep"
    with pytest.raises(ExampleTypeError) as caught:
        fb.compile(chain_model()).run([chain_of(2), data])
    head = "chain[False] Scalar('float32') at example 1 ['next']['next']"
    assert caught.value.where.startswith(head)
    assert caught.value.where.endswith("['next']['next']['x']")
    assert "..." in caught.value.where
    assert len(caught.value.where) < 500


def test_data_without_end_is_an_error(monkeypatch):
    monkeypatch.setattr(tracer, "MAX_LEVELS", 20_000)
    onward = fb.ForwardDeclaration(output_type="float32", name="onward")
    onward.resolve_to(fb.OneOf(bool, {True: fb.InputTransform(lambda x: [x]) >> onward(), False: ONE}))
    with pytest.raises(ExampleError, match="expected data that ends, found more than 20000 levels"):
        fb.compile(onward()).run([[1]])


def test_a_program_traces_in_several_threads_as_in_one():
    program = fb.compile(fb.Map(fb.InputTransform(lambda x: time.sleep(0) or x) >> ONE))  # lets others in
    examples = [[float(k)] * (k + 1) for k in range(40)]
    right = [[float(x) for x in result] for result in program.run(examples)]
    found: dict[int, list[list[float]]] = {}

    def work(number: int) -> None:
        found[number] = [[float(x) for x in result] for result in program.run(examples)]

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all(found[number] == right for number in range(4))


def test_a_function_of_the_users_may_trace_with_the_same_program():
    """A program whose data is made by running it on something else."""

    def again(x: int) -> int:
        return x if x == 0 else 1 + int(itself.run([x - 1])[0][0])

    itself = fb.compile(fb.AllOf(fb.InputTransform(again) >> ONE, ONE, fb.InputTransform(again) >> ONE))
    assert [float(x) for x in itself.run([3])[0]] == [3.0, 3.0, 3.0]


def test_examples_are_let_go_when_they_are_traced():
    class Example(dict):
        pass

    program = fb.compile(fb.GetItem("x") >> fb.Vector(2))
    example = Example(x=[1, 2])
    gone = weakref.ref(example)
    program.run([example])
    del example
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("memo", [None, True])
def test_a_declaration_may_need_nothing(memo: bool | None) -> None:
    """As Fold's with a void input; any node may be given to it."""
    start = fb.ForwardDeclaration(fb.types.VOID, [], "start", memo=memo)
    start.resolve_to(fb.FromTensor(np.float32(1)))
    counted = fb.ForwardDeclaration(output_type="float32", memo=memo)
    inner = fb.AllOf(start(), fb.Map(counted()) >> fb.Sum()) >> fb.Function(fb.ops.add)
    counted.resolve_to(fb.OneOf(fb.GetItem("is_leaf"), {True: start(), False: inner}))
    trees = [fb.trees.parse_brackets(text) for text in ("(S (A a) (B (C c) (D d)))", "(S s)")]
    assert fb.compile(counted()).run(trees) == [5, 1]
    pairs = (fb.Scalar() >> fb.Broadcast() >> fb.NGrams(2)).eval(4)
    assert next(pairs) == next(pairs) == (4, 4)


def test_an_iterator_that_two_blocks_read_is_refused_as_the_second_would_have_no_items():
    program = fb.compile(fb.AllOf(fb.Map(ONE), fb.NGrams(2)))
    assert program.run([iter([]), [1, 2]])[0] == ([], [])
    for used in (iter([1, 2]), (x for x in (1, 2))):
        with pytest.raises(
            ExampleTypeError, match="at example 1: .* read to its end; give a list of its items"
        ):
            program.run([[3], used])


def test_an_iterator_is_read_once_and_blamed_when_it_must_be_read_again():
    program = fb.compile(fb.Map(ONE))
    assert list(map(float, program.run([iter([1, 2])])[0])) == [1.0, 2.0]
    with pytest.raises(ExampleTypeError, match="model at example 0: expected float32, found str 'two'"):
        program.run([iter([1, "two"])])

    def once():
        yield 1
        raise LookupError("lost")

    with pytest.raises(
        ExampleError,
        match="found LookupError: lost; .* of iterators, which are used up by reading, make lists",
    ):
        program.run([once()])


def test_a_traceback_shows_the_tracing_program():
    program = fb.compile({"a": fb.InputTransform(lambda x: x["missing"]) >> ONE})
    fb.compile(ONE)  # another program, compiled later, must not be shown instead
    with pytest.raises(ExampleKeyError) as caught:
        program.run([{"a": {}}])
    text = "".join(traceback.format_exception(caught.value))
    assert "= fn_3(t2)" in text
    assert "KeyError: 'missing'" in text


def test_the_place_of_what_a_case_a_function_or_a_sequence_yields_leads_to_its_source():
    case = fb.GetItem("data") >> fb.OneOf(len, {1: fb.GetItem(0), 2: fb.GetItem(1)}) >> ONE
    with pytest.raises(ExampleTypeError, match=r"at example 0 \['data'\]: expected float32, found str 'x'"):
        case.eval({"data": ["x"]})
    last = fb.ForwardDeclaration(output_type=fb.types.OBJECT, name="last")
    last.resolve_to(
        fb.OneOf(lambda x: isinstance(x, list), {False: fb.Identity(), True: fb.GetItem(-1) >> last()})
    )
    with pytest.raises(ExampleTypeError, match=r"at example 0 \['data'\]: expected float32, found str 'x'"):
        (fb.GetItem("data") >> last() >> ONE).eval({"data": [1, [2, "x"]]})
    braces = fb.GetItem("{0}") >> fb.Map(fb.GetItem("{x!r}") >> ONE)
    with pytest.raises(ExampleTypeError, match=re.escape("at example 0 ['{0}'][1]['{x!r}']")):
        braces.eval({"{0}": [{"{x!r}": 1}, {"{x!r}": "x"}]})


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_is_looked_for_afterwards_as_it_was_before(enabled):
    program = fb.compile(fb.InputTransform(lambda x: x / 0 if x else 0) >> fb.Scalar())
    (gc.enable if enabled else gc.disable)()
    try:
        program.prepare([0, 0])
        assert gc.isenabled() == enabled
        with pytest.raises(ExampleError):
            program.prepare([1])
        assert gc.isenabled() == enabled
    finally:
        gc.enable()


def _first(x: Any) -> Any:
    return next(iter(x))


def _first_by_generator(x: Any) -> Any:
    return list(_first(part) for part in x)  # noqa: C400 - Python makes a RuntimeError here already


@pytest.mark.parametrize(
    ("block", "where"),
    [
        (fb.Map(fb.InputTransform(_first) >> ONE), r"model\.map InputTransform\(_first\) at example 1 \[1\]"),
        (fb.OneOf(_first, {1: fb.GetItem(0) >> ONE}), "model OneOf at example 1"),
        (fb.InputTransform(_first_by_generator) >> fb.Vector(2), r"model InputTransform\(.*\) at example 1"),
    ],
    ids=["transform", "key", "generator of the user"],
)
def test_a_function_that_raises_stop_iteration_is_found_as_any_other(block, where):
    batch = [[[1], [2]], [[3], []]] if "OneOf" not in where else [[1], []]
    with pytest.raises(ExampleError, match=where + ": expected a .* that succeeds, found ") as error:
        fb.compile(block, "numpy").run(batch)
    cause = error.value.__cause__
    assert isinstance(cause, RuntimeError if "model InputTransform" in where else StopIteration)


def test_a_function_may_wait_for_a_thread_that_runs_the_same_program():
    """No run waits for another one, so neither waits for ever."""

    def total(x: Any) -> float:
        if not isinstance(x, list):
            return x
        with ThreadPoolExecutor(1) as pool:
            (result,) = pool.submit(program.run, [x[0]]).result(timeout=30)
        return float(result) + 1

    program = fb.compile(fb.InputTransform(total) >> ONE, "numpy")
    assert program.run([1, [[2]], 3]) == [1, 4, 3]
    assert len(program.lowered.unused) == 3


BUFFER = np.zeros(2, np.float32)


def written(i: int) -> Any:
    BUFFER[:] = i
    return BUFFER


def written_with_place(i: int) -> Any:
    return written(i), i


def buffers(count: int, holder: Any = lambda buffer: buffer) -> Any:
    """Yield one buffer again and again."""
    for i in range(count):
        yield holder(written(i))


PAIR = fb.Vector(2)
WRITTEN = fb.InputTransform(written) >> PAIR
AFTER = fb.InputTransform(lambda i: written(i + 1)) >> PAIR
TREE = fb.ForwardDeclaration(output_type=2, name="tree")
TREE.resolve_to(fb.OneOf(lambda x: isinstance(x, int), {True: WRITTEN, False: fb.Map(TREE()) >> fb.Sum()}))


@pytest.mark.parametrize(
    ("block", "example", "right"),
    [
        (fb.Map(PAIR), lambda: buffers(3), [0, 1, 2]),
        (fb.Map(fb.GetItem(0) >> PAIR), lambda: buffers(3, lambda x: (x, 1)), [0, 1, 2]),
        (fb.Map(fb.GetItem("x") >> PAIR), lambda: buffers(3, lambda x: {"x": x}), [0, 1, 2]),
        (fb.NGrams(2) >> fb.Map(fb.GetItem(0) >> PAIR), lambda: buffers(3), [0, 1]),
        (fb.Zip() >> fb.Map(fb.GetItem(0) >> PAIR), lambda: (buffers(3), [0] * 3), [0, 1, 2]),
        (fb.Map(WRITTEN), lambda: [0, 1, 2], [0, 1, 2]),
        (fb.Map(fb.InputTransform(written_with_place) >> fb.GetItem(0) >> PAIR), lambda: [0, 1], [0, 1]),
        (fb.Map(fb.AllOf(WRITTEN, AFTER) >> fb.Function(lambda a, b: a + b)), lambda: [0, 1], [1, 3]),
        (TREE(), lambda: [4, [1, 2]], 7),
    ],
)
def test_an_array_that_is_written_to_again_is_read_as_it_was(block, example, right):
    walk = fb.compile(lambda x: block(x), "numpy")
    for program in (fb.compile(block, "numpy"), walk):
        results = program.run(example() for _ in range(2))
        np.testing.assert_array_equal([np.stack(result)[..., 0] for result in results], [right] * 2)
    if isinstance(right, int):
        programs = fb.compile(PAIR, "numpy"), fb.compile(lambda x: fb.tensor(x) * 1.0, "numpy")
        for program in programs:
            np.testing.assert_array_equal(np.stack(program.run(buffers(3)))[:, 0], [0, 1, 2])


@pytest.mark.parametrize(
    "held", [lambda parts: dict(enumerate(parts)).values(), deque, type("Own", (list,), {})]
)
def test_parts_that_stand_in_two_places_stay_one_object(held):
    """A copy of a part would be visited on each way that leads there: of 40 levels, on 2 ** 40 ways."""
    total = fb.ForwardDeclaration(output_type="float32", name="total")
    parts = fb.GetItem("parts") >> fb.Map(total()) >> fb.Sum()
    total.resolve_to(fb.OneOf(fb.InputTransform(type), {int: fb.Scalar(), dict: parts}))
    example = 1
    for _ in range(40):
        example = {"parts": held([example, example])}
    assert fb.compile(total(), "numpy").run([example]) == [2**40]
