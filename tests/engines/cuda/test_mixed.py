"""The precision ``mixed``: arenas of float32 hold bfloat16, rounded where NumPy rounds in the same places."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest

import foldbatch as fb
from benchmarks.zoo_models import MODELS
from foldbatch import ops
from foldbatch.engines.cuda import kernel_text, mixed, row_texts
from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.driver import HEADER
from foldbatch.params.parameters import dense
from foldbatch.types import TensorType
from tests.engines.cuda import emulator, on_cpu
from tests.engines.cuda.checked import driven
from tests.engines.cuda.emulated import needs_compiler
from tests.engines.cuda.emulator import Emulator
from tests.engines.cuda.launches.test_nvrtc import needs_nvrtc
from tests.engines.cuda.nvrtc import compiled
from tests.engines.cuda.on_cpu import always_captured
from tests.programs import checks

pytestmark = needs_compiler
MIXED = {"precision": "mixed"}
HIDDEN, WORDS = 48, 9  # a weight that is large enough for products of a library
UNIT = 2.0**-7  # of bfloat16: the most that a number and the next differ, relatively


def rounded(x: Any) -> Any:
    """Return numbers rounded to bfloat16, the nearest, of two the even one."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 32767 + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)


def tree_lstm(dtype: str) -> fb.Block:
    """Return a child-sum Tree-LSTM; the state of a node is h and c, and each node has a loss."""
    tree = fb.ForwardDeclaration(output_type=[2 * HIDDEN, dtype], name="tree")
    word = fb.GetItem(0) >> fb.Scalar("int32") >> fb.Embedding(WORDS, HIDDEN, dtype=dtype, name="words")
    gates = fb.Linear(4 * HIDDEN, name="gates")

    def state(x: Any, kids: Any) -> Any:
        total = ops.segment_sum(kids)
        z = gates(ops.concat([x, total[:HIDDEN]]))
        i, u, f, o = (z[n * HIDDEN : (n + 1) * HIDDEN] for n in range(4))
        c = ops.sigmoid(i) * ops.tanh(u) + ops.sigmoid(f) * total[HIDDEN:]
        return ops.concat([ops.sigmoid(o) * ops.tanh(c), c])

    loss = fb.Function(lambda h: ops.sum(h * h)) >> fb.Loss()
    node = fb.AllOf(word, fb.GetItem(1) >> fb.Map(tree())) >> fb.Function(state)
    tree.resolve_to(node >> fb.AllOf(fb.Identity(), loss) >> fb.GetItem(0))
    return tree()


def meant(params: Any, tree: Any) -> tuple[Any, float]:
    """Return the rounded state of a tree and the loss of its nodes, by NumPy in float64."""
    word, kids = tree
    states, losses = zip(*(meant(params, kid) for kid in kids), strict=True) if kids else ((), ())
    total = np.sum(states, axis=0) if kids else np.zeros(2 * HIDDEN)
    z = (
        np.concatenate([params["words.weight"][word], total[:HIDDEN]]) @ params["gates.weight"]
        + params["gates.bias"]
    )
    sigmoid = 1 / (1 + np.exp(-z))
    i, f, o = (sigmoid[n * HIDDEN : (n + 1) * HIDDEN] for n in (0, 2, 3))
    c = i * np.tanh(z[HIDDEN : 2 * HIDDEN]) + f * total[HIDDEN:]
    state = np.concatenate([o * np.tanh(c), c])
    read = rounded(state).astype(np.float64)
    return read, float(np.sum(read * read)) + sum(losses)


def grown(rng: np.random.Generator, depth: int) -> Any:
    kids = rng.integers(0, 4) if depth else 0
    return int(rng.integers(WORDS)), [grown(rng, depth - 1) for _ in range(kids)]


RNG = np.random.default_rng(0)
TREES = [grown(RNG, 4) for _ in range(10)]


def made(dtype: str = "float32", backend: str = "cuda-on-cpu", **given: Any) -> fb.Program:
    """Return the Tree-LSTM compiled, with parameters that are the same, and words that bfloat16 has."""
    program = fb.compile(tree_lstm(dtype), backend, threads=1, **given)
    rng = np.random.default_rng(1)
    for name in sorted(program.params):
        value = rng.normal(size=program.params[name].shape) * 0.3
        value = rounded(value) if name.startswith("words") else value.astype(np.float32)
        program.params[name] = value.astype(dtype)
    return program


def ran(program: fb.Program, examples: Any) -> Any:
    return list(program.run(examples))


def weights(program: fb.Program) -> dict[str, Any]:
    return {name: np.asarray(program.params[name], np.float64) for name in program.params}


def error(found: Any, right: Any) -> float:
    found, right = (np.asarray(x, np.float64) for x in (found, right))
    return float(np.linalg.norm(found - right) / np.linalg.norm(right))


@pytest.mark.parametrize("launch", ["straight", "captured"])
def test_states_are_those_that_numpy_rounds_in_the_same_places(launch: str) -> None:
    program = made(options=MIXED, launch=launch)
    with always_captured():
        states = np.array(ran(program, TREES))
    assert states.dtype == np.float32
    np.testing.assert_array_equal(states, rounded(states))
    right = np.array([meant(weights(program), tree)[0] for tree in TREES])
    assert np.mean(states == right) > 0.97  # else a sum in another order has been rounded otherwise
    np.testing.assert_allclose(states, right, rtol=UNIT, atol=1e-3)


@pytest.mark.parametrize("launch", ["straight", "captured"])
def test_a_training_step_is_that_of_float64_but_for_roundings(launch: str) -> None:
    program, oracle = made(options=MIXED, launch=launch), made("float64", "numpy")
    with always_captured():
        loss, gradients = program.value_and_grad(TREES)
        loss = float(loss)
    right, slopes = oracle.value_and_grad(TREES)
    assert loss == pytest.approx(sum(meant(weights(program), tree)[1] for tree in TREES), rel=1e-4)
    assert 1e-6 < abs(loss / float(right) - 1) < 2e-3
    for name, slope in slopes.items():
        assert dense(gradients[name]).dtype == np.float32
        assert 1e-5 < error(dense(gradients[name]), dense(slope)) < 5e-3, name
        fb.Adam(lr=0.01).update(program.params, gradients)
    assert all(program.params[name].dtype == np.float32 for name in program.params)


def test_a_batch_yields_the_bits_of_its_examples() -> None:
    """Levels have few rows, so products of both are done by one kernel."""
    program = made(options=MIXED, launch="straight")
    together = ran(program, TREES)
    for tree, state in zip(TREES, together, strict=True):
        np.testing.assert_array_equal(ran(program, [tree])[0], state)
    before = np.array(together)
    program.value_and_grad(TREES[:3])
    np.testing.assert_array_equal(np.array(ran(program, TREES[::-1]))[::-1], before)


@pytest.mark.parametrize("name", sorted(MODELS))
@pytest.mark.parametrize("launch", ["straight", "captured"])
def test_models_of_the_zoo_step_as_in_float32_but_for_roundings(name: str, launch: str) -> None:
    texts = ["(1 (2 a) (3 (1 bb) (2 ccc)))", "(0 (1 bb) (2 a))", "(2 a)", "(1 (1 (1 a) (2 a)) (3 bb))"]
    trees = [fb.trees.parse_brackets(text, labels=int) for text in texts]
    vocabulary = fb.trees.Vocabulary(dict.fromkeys(word for tree in trees for word in tree.words()))
    steps = []
    for backend, options in (("cuda-on-cpu", MIXED), ("numpy", {})):
        where = launch if options else "auto"
        block = MODELS[name].block(12, vocabulary)
        program = fb.compile(block, backend, threads=1, seed=3, options=options, launch=where, debug=True)
        with always_captured():
            loss, gradients = program.value_and_grad(trees)
            steps.append((float(loss), {key: dense(gradients[key]) for key in gradients}))
    (loss, gradients), (right, slopes) = steps
    assert loss == pytest.approx(right, rel=5e-3)
    found, expected = (
        np.concatenate([np.asarray(part[key], np.float64).ravel() for key in slopes])
        for part in (gradients, slopes)
    )
    assert 0 < error(found, expected) < 2e-2


def test_values_of_float64_and_integers_are_as_they_were() -> None:
    plain, program = made("float64"), made("float64", options=MIXED)
    np.testing.assert_array_equal(np.array(ran(program, TREES)), np.array(ran(plain, TREES)))
    (_, gradients), (_, slopes) = program.value_and_grad(TREES), plain.value_and_grad(TREES)
    for name in slopes:
        np.testing.assert_array_equal(dense(gradients[name]), dense(slopes[name]))
    ids = fb.Map(fb.Scalar("int32") >> fb.Function(lambda x: x * 3)) >> fb.Map(
        fb.Function(lambda x: x + 70001)
    )
    large = fb.compile(ids, "cuda-on-cpu", options=MIXED)
    assert [list(map(int, row)) for row in ran(large, [[1, 99999]])] == [[70004, 369998]]


def test_values_that_are_asked_for_after_the_launch_are_those_that_came_with_it() -> None:
    program = made(options=MIXED)
    batch = fb.program.schedule(program, TREES)
    engine: Any = program.engine
    numbers = list(range(8))
    fetched = []
    for late in (False, True):
        run = engine.forward(engine.ready(batch, training=False), batch.feeds, engine.memory())
        if late:
            assert all(float(loss) > 0 for loss in run.loss_sums().values())
        else:
            run.expect(numbers)
        fetched.append([np.array(value) for value in run.fetch(numbers)])
    came, asked = fetched
    for first, second in zip(came, asked, strict=True):
        np.testing.assert_array_equal(first, second)
        np.testing.assert_array_equal(first, rounded(first))


def taken(program: fb.Program) -> dict[str, int]:
    """Return the bytes that are allocated for values and cotangents of arenas by a training step."""
    with driven() as driver:
        engine: Any = program.engine
        engine.device = on_cpu.device()
        batch = fb.program.schedule(program, TREES)
        ready, memory = engine.ready(batch, training=True), engine.memory()
        engine.forward(ready, batch.feeds, memory)
        buffers = memory.buffers[True]
        assert driver.calls
    kinds = dict.fromkeys(("values", "cotangents"), 0)
    for (kind, *_), number in ready.phase.bound.buffers.items():
        if kind in kinds:
            kinds[kind] += buffers.sources[number].nbytes
    return kinds


def test_an_arena_of_values_takes_half_of_the_memory() -> None:
    plain, program = (taken(made(options=options)) for options in ({}, MIXED))
    assert program == {"values": plain["values"] // 2, "cotangents": plain["cotangents"]}


def test_numbers_are_rounded_to_the_nearest_and_nan_stays_nan() -> None:
    """Also infinity, and numbers that are too large for bfloat16."""
    numbers = np.array(
        [1.0, 1 + 2**-8, 1 + 3 * 2**-8, -1.00390625001, 3.4e38, np.inf, -np.inf, 1e-40, -0.0], np.float32
    )
    block = fb.Vector(len(numbers)) >> fb.Function(lambda x: x * 1)
    program = fb.compile(block, "cuda-on-cpu", options=MIXED)
    found, _ = ran(program, [numbers, numbers])
    np.testing.assert_array_equal(np.array(found), rounded(numbers))
    assert np.signbit(np.array(found)[-1])
    for bits in (0x7F800001, 0x7FFFFFFF, 0xFFC00000):
        numbers[:] = np.array([bits], np.uint32).view(np.float32)
        assert np.isnan(np.array(ran(program, [numbers])[0])).all()


@contextmanager
def as_float64() -> Iterator[None]:
    """Let programs of "cuda-on-cpu" go the ways of ``mixed``, with float64 in the place of both kinds of number."""

    def stored_kind(kind: str, routine: Any) -> str:
        return "b2" if kind == "f8" and routine.precision == "mixed" else kind

    def load(model: Any, settings: Any) -> Any:
        return on_cpu.load(model, settings._replace(precision="mixed"))

    text = HEADER.read_text().replace("typedef unsigned short b2;", "typedef double b2;")
    begin, end = text.index("DEVICE f4 f4_of_b2"), text.index("DEVICE i8 min_i8")
    same = "DEVICE f8 f4_of_b2(b2 x) { return x; }\nDEVICE b2 b2_of_f4(f8 x) { return x; }\n"
    header: Any = SimpleNamespace(read_text=lambda: text[:begin] + same + text[end:])
    with (
        mock.patch.object(emulator, "HEADER", header),
        mock.patch.multiple(mixed, ROUNDED="float64", RoundedType=TensorType),
        mock.patch.object(kernel_text, "stored_kind", stored_kind),
        mock.patch.object(row_texts, "stored_kind", stored_kind),
        mock.patch.object(on_cpu, "BACKEND", replace(on_cpu.BACKEND, load=load)),
    ):
        yield


@pytest.mark.slow
@pytest.mark.parametrize("number", range(12))
def test_random_programs_that_copy_operands_compute_the_same(number: int) -> None:
    with as_float64():
        checks.check(number, "cuda-on-cpu", tuple(checks.DOORS)[number % 3], many=False)


class Texts(Emulator):
    """The emulator, which notes the texts that it loads."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def load(self, source: str) -> Any:
        self.texts.append(source)
        return super().load(source)


@needs_nvrtc
@pytest.mark.slow
@pytest.mark.parametrize("where", ["sm_75", "sm_80", "sm_90"])
def test_texts_compile_for_gpus_without_a_warning(where: str) -> None:
    there = Device(Texts())
    with mock.patch.object(on_cpu, "device", lambda: there):
        made(options=MIXED).value_and_grad(TREES)
    texts = there.driver.texts
    assert any("b2_of_f4" in text and "f4_of_b2" in text for text in texts)
    for text in texts:
        assert "warning" not in compiled(text, where).log
