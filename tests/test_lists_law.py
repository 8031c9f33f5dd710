"""The law of lists: what an op or a layer makes of the elements of a list is what it makes of each of them alone.

All ops of `foldbatch.ops` and all layers are in the tables below, so a new one fails the test until it has a case. A batch
holds lists of 0, 1, 2 and many elements; elements are nests of tuples, also of one item, and meet values of the call. Values
and gradients are compared, in cells of a plain function and in blocks.
"""

# Annotations of cells are read where they stand, so they are no texts here
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.blocks import layers
from foldbatch.errors import FoldbatchError
from foldbatch.params.parameters import dense
from tests.backends import lawful, running

SIZE = 4
FLOAT = "float64"
VECTOR, ID = f"{FLOAT}[{SIZE}]", "int32"
LENGTHS = (3, 0, 1, 2, 7, 1)


class Parts(NamedTuple):
    """What a case computes with.

    Attributes:
        x, h, c: vectors of an element.
        k: a number from 0 to 3 of an element.
        q: a vector of the call.
        m: a matrix of the call.
    """

    x: Any
    h: Any
    c: Any
    k: Any
    q: Any
    m: Any


Case = Callable[[Parts], Any]  # yields a tensor, or a nest of tuples of them


def matrix(p: Parts) -> Any:
    """Return a matrix of an element."""
    return ops.reshape(p.x, (SIZE, 1)) * ops.reshape(p.h, (1, SIZE))


OF_ELEMENTS: Mapping[str, Case] = {
    "abs": lambda p: ops.abs(p.x),
    "add": lambda p: (p.x + p.q, ops.add(p.x, p.h, p.q, 1.0), ops.add(p.x)),
    "argmax": lambda p: (ops.argmax(p.x), ops.argmax(matrix(p), axis=0)),
    "argsort": lambda p: ops.argsort(p.x * p.q),
    "batched": lambda p: ops.batched(p.x),
    "binary_cross_entropy": lambda p: ops.binary_cross_entropy(p.x, ops.sigmoid(p.q)),
    "broadcast_to": lambda p: ops.broadcast_to(p.x, (3, SIZE)),
    "cast": lambda p: ops.cast(p.k, FLOAT) * p.h,
    "clip": lambda p: (ops.clip(p.x, -0.5, 0.5), ops.clip(p.x, p.q - 1.0, p.h + 2.0)),
    "concat": lambda p: (ops.concat([p.x, p.q]), ops.concat([p.x]), ops.concat([p.x, p.h, p.x])[..., 3:7]),
    "cos": lambda p: ops.cos(p.x),
    "cross_entropy": lambda p: (
        ops.cross_entropy(p.x, p.k),
        ops.cross_entropy(p.q, p.k, weights=np.arange(1.0, SIZE + 1), smoothing=0.2),
    ),
    "cumsum": lambda p: (ops.cumsum(p.x), ops.cumsum(matrix(p), axis=1)),
    "divide": lambda p: p.x / (1.0 + p.q * p.q),
    "dot": lambda p: (ops.dot(p.x, p.q), ops.dot(p.x, p.m), ops.dot(matrix(p), p.h)),
    "einsum": lambda p: (ops.einsum("i,j->ij", p.x, p.q), ops.einsum("i,ij,j->", p.x, p.m, p.h)),
    "equal": lambda p: ops.equal(p.k, 2),
    "exp": lambda p: ops.exp(p.x),
    "expand_dims": lambda p: (ops.expand_dims(p.x, 0), ops.expand_dims(p.x, 1) * p.q),
    "floor": lambda p: ops.floor(p.x),
    "floor_divide": lambda p: ops.floor_divide(p.x, p.q),
    "gather": lambda p: (ops.gather(p.x, p.k), ops.gather(p.m, p.k), ops.gather(np.eye(SIZE), p.k) * p.x),
    "gelu": lambda p: ops.gelu(p.x),
    "getitem": lambda p: (p.x[..., 0], p.x[..., ::-1], (p.x * 2.0)[1:], p.m[p.k], p.x[..., None, 2]),
    "greater": lambda p: ops.greater(p.x, p.q),
    "greater_equal": lambda p: ops.greater_equal(p.q, p.x),
    "less": lambda p: ops.less(p.x, p.q),
    "less_equal": lambda p: ops.less_equal(p.x, 0.0),
    "log": lambda p: ops.log(1.0 + p.x * p.x),
    "log_sigmoid": lambda p: ops.log_sigmoid(p.x * p.q),
    "log_softmax": lambda p: (ops.log_softmax(p.x * p.q), ops.log_softmax(matrix(p), axis=0)),
    "logical_and": lambda p: ops.logical_and(p.x > 0, p.q > 0),
    "logical_not": lambda p: ops.logical_not(p.x > 0),
    "logical_or": lambda p: ops.logical_or(p.x > 0, p.q > 0),
    "logsumexp": lambda p: (ops.logsumexp(p.x), ops.logsumexp(matrix(p), axis=0)),
    "matmul": lambda p: (
        p.x @ p.m,
        p.m @ p.x,
        matrix(p) @ p.m,
        p.x @ np.full((SIZE, 2), 0.5),
        p.q @ matrix(p),
    ),
    "max": lambda p: (ops.max(p.x), ops.max(matrix(p), axis=0)),
    "maximum": lambda p: ops.maximum(p.x, p.q),
    "mean": lambda p: (ops.mean(p.x) * p.q, ops.mean(matrix(p), axis=1, keepdims=True)),
    "min": lambda p: (ops.min(p.x), ops.min(p.k + np.arange(3, dtype="int32")), ops.min(matrix(p), axis=0)),
    "minimum": lambda p: ops.minimum(p.q, p.x),
    "mod": lambda p: ops.mod(p.x, 1.0 + p.q * p.q),
    "multiply": lambda p: p.x * p.q * p.h,
    "negative": lambda p: -p.x,
    "norm": lambda p: (p.x / ops.norm(p.x), ops.norm(p.x * 0.0), ops.norm(matrix(p), axis=0)),
    "not_equal": lambda p: ops.not_equal(p.k, 1),
    "one_hot": lambda p: ops.one_hot(p.k, SIZE, FLOAT) * p.h,
    "pad": lambda p: ops.pad(p.x, 1, 2),
    "power": lambda p: (p.x**3, 2.0**p.x, (1.0 + p.x * p.x) ** -0.5),
    "relu": lambda p: ops.relu(p.x),
    "reshape": lambda p: ops.reshape(p.x, (2, 2)) @ ops.reshape(p.q, (2, 2)),
    "round": lambda p: ops.round(p.x * 3.0),
    "sigmoid": lambda p: ops.sigmoid(p.x * p.q),
    "sign": lambda p: ops.sign(p.x),
    "sin": lambda p: ops.sin(p.x),
    "softmax": lambda p: (ops.softmax(p.x) * p.h, ops.softmax(matrix(p), axis=0)),
    "softplus": lambda p: ops.softplus(p.x),
    "sort": lambda p: ops.sort(p.x) * p.q,
    "split": lambda p: (*ops.split(p.x, 2), *ops.split(p.x * p.q, 4), *ops.split(matrix(p), 2, axis=1)),
    "sqrt": lambda p: ops.sqrt(1.0 + p.x * p.x),
    "square": lambda p: ops.square(p.x),
    "squeeze": lambda p: (ops.squeeze(ops.reshape(p.x, (1, SIZE)), 0), ops.squeeze(p.x[..., :1], 0)),
    "stack": lambda p: (ops.stack([p.x, p.h, p.q]), ops.stack([p.x]), ops.stack([p.x, p.q], axis=1)),
    "stop_gradient": lambda p: ops.stop_gradient(p.x) * p.h,
    "subtract": lambda p: p.q - p.x,
    "sum": lambda p: (
        ops.sum(p.x),
        ops.sum(ops.einsum("i,j->ij", np.linspace(-1, 1, 20), p.x), axis=0),
        ops.sum(matrix(p) * p.m, axis=0),
        ops.sum(matrix(p), axis=(0, 1)),
    ),
    "tanh": lambda p: ops.tanh(p.x),
    "topk": lambda p: (*ops.topk(p.x, 3), *ops.topk(matrix(p), 1, axis=0)),
    "transpose": lambda p: (ops.transpose(matrix(p)) * p.m, matrix(p).T, p.x.T),
    "when_training": lambda p: ops.when_training(p.x * 2.0, p.x * p.q),
    "where": lambda p: (ops.where(p.x > p.q, p.h, p.c), ops.where(p.q > 0, p.h, p.q)),
}


def layer_cases() -> dict[str, Case]:
    """Return what layers compute, by the layer's name and what it is given; parameters are anew each time."""
    linear, norm = fb.Linear(3, "tanh"), fb.blocks.LayerNorm()
    table = fb.Embedding(SIZE, SIZE, dtype=FLOAT)
    lstm, gru, paper = fb.LSTMCell(SIZE), fb.GRUCell(SIZE), fb.GRUCell(SIZE, reset_after=False)
    lstm_tree, lstm_chain = fb.TreeLSTM(SIZE), fb.TreeLSTM(SIZE, arity=1)
    net, chain, rntn = fb.blocks.TreeRNN(SIZE), fb.blocks.TreeRNN(SIZE, arity=1), fb.blocks.RNTN(SIZE)
    sums, gated = fb.ChildSumTreeLSTM(SIZE), fb.blocks.TreeGRU(SIZE)
    additive, scaled = fb.blocks.Attention(3), fb.blocks.Attention(score="dot")
    return {
        "Linear": lambda p: (linear(p.x), linear(matrix(p))),
        "LayerNorm": lambda p: norm(p.x * p.q),
        "Embedding": lambda p: table(p.k) * p.x,
        "LSTMCell": lambda p: lstm(p.x, (p.h, p.c)),
        "LSTMCell, the call's state": lambda p: lstm(p.x, (p.q, p.q)),
        "LSTMCell, no x": lambda p: lstm(None, (p.h, p.c)),
        "GRUCell": lambda p: gru(p.x, p.h),
        "GRUCell, the call's x": lambda p: paper(p.q, p.h),
        "TreeLSTM, leaf": lambda p: lstm_tree(p.x, ()),
        "TreeLSTM, 1": lambda p: lstm_chain(p.x, ((p.h, p.c),)),
        "TreeLSTM, 2": lambda p: lstm_tree(p.x, ((p.h, p.c), (p.q, p.c))),
        "TreeLSTM, one missing": lambda p: lstm_tree(None, (None, (p.h, p.c))),
        "TreeRNN, leaf": lambda p: net(p.x, ()),
        "TreeRNN, 1": lambda p: chain(p.x, (p.h,)),
        "TreeRNN, 2": lambda p: net(p.q, (p.h, p.c)),
        "RNTN, leaf": lambda p: rntn(p.x),
        "RNTN, 2": lambda p: rntn(None, (p.h, p.q)),
        "ChildSumTreeLSTM, leaf": lambda p: sums(p.x, ()),
        "ChildSumTreeLSTM, 1": lambda p: sums(p.x, ((p.h, p.c),)),
        "ChildSumTreeLSTM, 1 without x": lambda p: sums(None, ((p.h, p.c),)),
        "ChildSumTreeLSTM, 1 of the call": lambda p: sums(p.x, ((p.q, p.q),)),
        "ChildSumTreeLSTM, 2": lambda p: sums(p.x, ((p.h, p.c), (p.q, p.h))),
        "ChildSumTreeLSTM, 3": lambda p: sums(p.q, ((p.h, p.c), (p.c, p.h), (p.x, p.h))),
        "TreeGRU, leaf": lambda p: gated(p.x, ()),
        "TreeGRU, 1": lambda p: gated(p.x, (p.h,)),
        "TreeGRU, 1 without x": lambda p: gated(None, (p.h,)),
        "TreeGRU, one missing": lambda p: gated(p.x, (None, p.h)),
        "TreeGRU, 2": lambda p: gated(p.x, (p.h, p.q)),
        "TreeGRU, 3": lambda p: gated(p.q, (p.h, p.c, p.x)),
        "Attention, 1": lambda p: additive(p.x, (p.h,)),
        "Attention, 2": lambda p: additive(p.q, (p.h, p.q)),
        "Attention, 3": lambda p: scaled(p.x, (p.h, p.c, p.q)),
    }


# Of a list as a whole: what a sequence's op makes of it, and what makes the same of its elements stacked.
OF_LISTS: Mapping[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "segment_argmax": (lambda x, h: ops.segment_argmax(x), lambda x, h: ops.argmax(x, axis=0)),
    "segment_log_softmax": (
        lambda x, h: ops.segment_sum(ops.segment_log_softmax(x) * h),
        lambda x, h: ops.sum(ops.log_softmax(x, axis=0) * h, axis=0),
    ),
    "segment_logsumexp": (lambda x, h: ops.segment_logsumexp(x), lambda x, h: ops.logsumexp(x, axis=0)),
    "segment_max": (lambda x, h: ops.segment_max(x), lambda x, h: ops.max(x, axis=0)),
    "segment_mean": (lambda x, h: ops.segment_mean(x * h), lambda x, h: ops.mean(x * h, axis=0)),
    "segment_min": (lambda x, h: ops.segment_min(x), lambda x, h: ops.min(x, axis=0)),
    "segment_position": (
        lambda x, h: ops.segment_sum(ops.cast(ops.segment_position(x), FLOAT) * h[..., 0]),
        lambda x, h: ops.sum(np.arange(float(x.shape[0])) * h[:, 0]),
    ),
    "segment_softmax": (
        lambda x, h: ops.segment_sum(ops.segment_softmax(x) * h),
        lambda x, h: ops.sum(ops.softmax(x, axis=0) * h, axis=0),
    ),
    "segment_sum": (lambda x, h: ops.segment_sum(x * h), lambda x, h: ops.sum(x * h, axis=0)),
}
DRAWS = {"random", "normal", "sample"}  # other numbers for each call: see the last tests

# What a list's elements are refused for, and what must be said: the name of the op or layer, and the way out.
REFUSED: Mapping[str, tuple[Case, str]] = {
    "getitem": (
        lambda p: p.x[0],
        r"ops.getitem: expected a tensor of one call.*ops.gather\(x, 0\) one element",
    ),
    "len": (lambda p: len(p.x), "ops.len: expected a tensor of one call.*the list's length as a number"),
    "iter": (lambda p: list(p.x), "ops.iter: expected a tensor of one call.*call a cell for each element"),
    "segment_sum of the call's": (
        lambda p: ops.segment_sum(p.q),
        "ops.segment_sum: expected a tensor of a sequence's elements.*ops.sum along axes",
    ),
    "softmax of numbers": (
        lambda p: ops.softmax(p.x[..., 0]),
        "ops.softmax: expected a tensor of at least one axis.*over the elements of a list goes ops.segment_softmax",
    ),
    "cross_entropy of numbers": (
        lambda p: ops.cross_entropy(p.x[..., 0], p.k),
        r"ops.cross_entropy: expected float logits.*-ops.gather\(ops.segment_log_softmax\(scores\), label\)",
    ),
    "split": (lambda p: ops.split(p.x, 3), "ops.split: expected a number of parts that divides 4"),
    "cumsum": (lambda p: ops.cumsum(p.x, axis=1), "ops.cumsum: expected an axis from -1 to 0"),
    "squeeze": (lambda p: ops.squeeze(p.x, 0), "ops.squeeze: expected an axis of extent 1"),
    "Dropout": (lambda p: fb.Dropout(0.5)(p.x), r"Dropout\(0.5\): expected one tensor.*drop in the elements"),
    "Attention": (
        lambda p: fb.blocks.Attention(score="dot")(p.x, p.h),
        "Attention.*: expected one vector as query, found a sequence of them",
    ),
    "ChildSumTreeLSTM": (
        lambda p: fb.ChildSumTreeLSTM(SIZE)(p.x, (p.h, p.c)),
        "ChildSumTreeLSTM.*: expected a tuple of children beside an x of every element.*tuple of one child",
    ),
    "ChildSumTreeLSTM, a state of the call": (
        lambda p: fb.ChildSumTreeLSTM(SIZE)(p.q, (p.q, p.q)),
        r"ChildSumTreeLSTM.*: expected a sequence or tuple of states \(h, c\) as children",
    ),
    "TreeGRU": (
        lambda p: fb.blocks.TreeGRU(SIZE)(p.x, p.h),
        "TreeGRU.*: expected a tuple of children beside an x of every element.*tuple of one child",
    ),
}


def flat(result: Any) -> Iterator[Any]:
    """Yield the tensors of a nest of tuples."""
    for item in result if isinstance(result, tuple) else (result,):
        yield from flat(item) if isinstance(item, tuple) else (item,)


@cache
def weight(case: str, number: int, shape: tuple[int, ...]) -> Any:
    """Return numbers for a result of a case, so that no two elements of it count as much."""
    rng = np.random.default_rng([*case.encode(), number])
    return rng.uniform(0.5, 1.5, shape) * rng.choice([-1.0, 1.0], shape)


class Scores:
    """A number for each case, of an element or of all elements of a list.

    Parameters scale all data before they become elements, so that their gradients tell those of elements.
    """

    def __init__(self, cases: Mapping[str, Case]) -> None:
        self.cases = cases
        rng = np.random.default_rng(1)
        self.scales = {
            name: fb.Parameter(fb.types.TensorType(shape, FLOAT), rng.uniform(0.5, 1.5, shape), name)
            for name, shape in {**dict.fromkeys("xhcq", (SIZE,)), "m": (SIZE, SIZE)}.items()
        }

    def of(self, element: Any, q: Any, m: Any) -> Any:
        """Return the numbers of an element ``(x, ((h, c),), (k, s))``: ``[cases]``."""
        x, ((h, c),), (k, s) = element
        parts = Parts(x, h, c, k, q, m)
        totals = []
        for name, case in self.cases.items():
            result = case(parts)
            terms = [
                ops.sum(ops.cast(y, FLOAT) * weight(name, i, y.shape)) for i, y in enumerate(flat(result))
            ]
            totals.append(ops.add(*terms))
        return ops.stack(totals) * s

    def loss(self, numbers: Any) -> Any:
        return ops.sum(numbers * weight("loss", 0, (len(self.cases),)))


def examples() -> list[Any]:
    rng = np.random.default_rng(3)

    def element() -> Any:
        x, h, c = rng.normal(size=(3, SIZE)).tolist()
        return x, ((h, c),), (int(rng.integers(SIZE)), float(rng.normal()))

    return [
        (
            [element() for _ in range(length)],
            rng.normal(size=SIZE).tolist(),
            rng.normal(size=(SIZE, SIZE)).tolist(),
        )
        for length in LENGTHS
    ]


def in_cells(scores: Scores, backend: str) -> tuple[fb.Program, fb.Program]:
    """Return programs of plain functions: a cell over lists, and a cell for each element."""
    count = len(scores.cases)

    @fb.cell
    def over_list(elements: list[(VECTOR, ((VECTOR, VECTOR),), (ID, FLOAT))], q: Any, m: Any) -> Any:  # type: ignore[valid-type]
        numbers = ops.segment_sum(scores.of(elements, q, m))
        fb.loss(scores.loss(numbers))
        return numbers

    @fb.cell
    def alone(element: Any, q: Any, m: Any) -> Any:
        return scores.of(element, q, m)

    @fb.cell
    def summed(several: list[f"{FLOAT}[{count}]"]) -> Any:  # type: ignore[valid-type]
        numbers = ops.segment_sum(several)
        fb.loss(scores.loss(numbers))
        return numbers

    def scaled(name: str, numbers: Any) -> Any:
        return fb.tensor(numbers, FLOAT) * scores.scales[name]

    def values(example: Any) -> Any:
        elements, q, m = example
        made = [
            (scaled("x", x), ((scaled("h", h), scaled("c", c)),), (fb.tensor(k), fb.tensor(s, FLOAT)))
            for x, ((h, c),), (k, s) in elements
        ]
        return made, scaled("q", q), scaled("m", m)

    def one_by_one(example: Any) -> Any:
        elements, q, m = values(example)
        return summed([alone(element, q, m) for element in elements])

    return fb.compile(lambda e: over_list(*values(e)), backend), fb.compile(one_by_one, backend)


def in_blocks(scores: Scores, backend: str) -> tuple[fb.Program, fb.Program]:
    """Return programs of blocks: a function of a sequence, and one in a Map over records of tuples."""
    vector = fb.Vector(SIZE, FLOAT)
    element = fb.Record(
        (vector, fb.Record((fb.Record((vector, vector)),)), (fb.Scalar(ID), fb.Scalar(FLOAT)))
    )
    read = fb.Record((fb.Map(element), vector, fb.Tensor((SIZE, SIZE), FLOAT)))
    end = fb.AllOf(fb.Identity(), fb.Function(scores.loss) >> fb.Loss()) >> fb.GetItem(0)

    def over_list(elements: Any, q: Any, m: Any) -> Any:
        return ops.segment_sum(scores.of(elements, q, m))

    each = (
        fb.AllOf(fb.GetItem(0), fb.GetItem(1) >> fb.Broadcast(), fb.GetItem(2) >> fb.Broadcast()) >> fb.Zip()
    )
    blocks = (
        read >> fb.Function(over_list) >> end,
        read >> each >> fb.Map(fb.Function(scores.of)) >> fb.Sum() >> end,
    )
    return fb.compile(blocks[0], backend), fb.compile(blocks[1], backend)


def disagreement(programs: Sequence[fb.Program]) -> list[str]:
    """Return what two programs with the same parameters compute otherwise: results, losses, gradients."""
    wrong = []
    for batch in (examples(), [e for e in examples() if not e[0]] * 2):
        for program in programs:
            program.warm(batch)
        results = [np.stack(program.run(batch)) for program in programs]
        trained = [program.value_and_grad(batch) for program in programs]
        wrong += ["values"] * (not _alike(*results)) + ["loss"] * (not _alike(*[loss for loss, _ in trained]))
        gradients = [
            {program.params.parameters[name]: np.asarray(dense(g)) for name, g in found.items()}
            for program, (_, found) in zip(programs, trained, strict=True)
        ]
        for parameter in {
            **gradients[0],
            **gradients[1],
        }:  # what a program does not read has a gradient of zero
            pair = [g.get(parameter, np.zeros(parameter.type.shape)) for g in gradients]
            wrong += [parameter.name] * (not _alike(*pair))
    return wrong


def _alike(a: Any, b: Any) -> bool:
    return np.shape(a) == np.shape(b) and np.allclose(a, b, rtol=1e-8, atol=1e-9)


def unlawful(cases: Mapping[str, Case], door: Callable[..., Any], backend: str) -> Iterator[str]:
    """Yield what differs over lists: all cases are computed at once, and one by one only where that fails."""
    try:
        if not disagreement(door(Scores(cases), backend)):
            return
    except (FoldbatchError, ValueError):
        pass
    for name, case in cases.items():
        try:
            wrong = disagreement(door(Scores({name: case}), backend))
        except (FoldbatchError, ValueError) as error:
            wrong = [f"{type(error).__name__}: {error}"]
        if wrong:
            yield f"{name}: {', '.join(wrong)}"


@pytest.mark.parametrize("door", [in_cells, in_blocks])
@pytest.mark.parametrize("kind", ["ops", "layers"])
@lawful
def test_over_a_list_is_one_by_one(engine: str, kind: str, door: Callable[..., Any]) -> None:
    with running(engine, 8) as backend:  # of what PTX compiles in a third of the time
        assert list(unlawful(OF_ELEMENTS if kind == "ops" else layer_cases(), door, backend)) == []


@lawful
def test_of_a_list_as_a_whole_is_of_its_elements_stacked(engine: str) -> None:
    scale = fb.Parameter(fb.types.TensorType((SIZE,), FLOAT), np.linspace(0.5, 1.5, SIZE), "scale")

    def joined(results: list[Any]) -> Any:
        numbers = ops.concat([ops.reshape(ops.cast(y, FLOAT), -1) for y in results])
        fb.loss(ops.sum(numbers * weight("loss", 1, numbers.shape)))
        return numbers

    @fb.cell
    def over_list(elements: list[(VECTOR, VECTOR)]) -> Any:  # type: ignore[valid-type]
        x, h = elements
        return joined([of_list(x * scale, h) for of_list, _ in OF_LISTS.values()])

    @fb.cell
    def of_stack(x: Any, h: Any) -> Any:
        return joined([of_stacked(x * scale, h) for _, of_stacked in OF_LISTS.values()])

    def values(example: Any) -> Any:
        return [(fb.tensor(x, FLOAT), fb.tensor(h, FLOAT)) for x, ((h, _),), _ in example[0]]

    batch = examples()
    with running(engine, 1) as backend:
        lists = fb.compile(lambda e: over_list(values(e)), backend)
        stacks = fb.compile(lambda e: of_stack(*map(ops.stack, zip(*values(e), strict=True))), backend)
        results, filled = lists.run(batch), [e for e in batch if e[0]]
        right = iter(stacks.run(filled))
        for example, result in zip(batch, results, strict=True):
            expected = next(right) if example[0] else np.zeros(result.shape)
            np.testing.assert_allclose(result, expected, rtol=1e-8, atol=1e-9)
        (loss, gradients), (right_loss, expected) = (p.value_and_grad(filled) for p in (lists, stacks))
        np.testing.assert_allclose(loss, right_loss, rtol=1e-8)
        np.testing.assert_allclose(gradients["scale"], expected["scale"], rtol=1e-8)


@pytest.mark.parametrize("name", REFUSED)
def test_what_elements_are_refused_for_names_the_op_and_the_way_out(name: str) -> None:
    case, text = REFUSED[name]
    with pytest.raises(FoldbatchError, match=text):
        in_cells(Scores({name: case}), "numpy")[0].run(examples())


def test_every_op_and_layer_has_a_case_or_is_named() -> None:
    assert {*OF_ELEMENTS, *OF_LISTS, *DRAWS} == {*ops.__all__, "getitem"}
    covered = {name.partition(",")[0] for name in (*layer_cases(), *REFUSED)}
    assert {*layers.__all__} - {"Layer"} <= covered


@lawful
def test_draws_differ_from_element_to_element_and_are_drawn_again(engine: str) -> None:
    @fb.cell
    def drawn(elements: list[VECTOR]) -> Any:  # type: ignore[valid-type]
        return ops.segment_sum(ops.one_hot(ops.sample(elements), SIZE))

    with running(engine, 1) as backend:
        program = fb.compile(lambda n: drawn([fb.tensor([0.0] * SIZE, FLOAT)] * n), backend)
        counts, again = (np.stack(program.run([200, 200], step=7)) for _ in range(2))
    np.testing.assert_array_equal(counts, again)
    assert counts.min() > 20  # of 50; one draw for all elements would count 200 or 0
    assert (counts[0] != counts[1]).any()
