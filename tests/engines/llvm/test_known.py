"""Products taken out of a recursion change nothing but the time, whatever is known before it starts."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch.engines.bindings import KernelKey
from foldbatch.engines.engine import EngineSettings
from foldbatch.engines.llvm import known_products
from foldbatch.engines.reference import Evaluation
from foldbatch.params.parameters import SparseRows
from foldbatch.scheduler.layout import LAYOUTS
from foldbatch.scheduler.sharing import SHARES
from foldbatch.static import ops
from tests.engines import unfused
from tests.engines.random_cells import Runnable, runnables
from tests.knobs import knobs

pytestmark = [
    pytest.mark.llvm,
    pytest.mark.skipif(find_spec("llvmlite") is None, reason="llvmlite is not installed"),
]
Tree = Any  # a word, or a pair of trees
trees: st.SearchStrategy[Tree] = st.recursive(
    st.integers(0, 4), lambda inner: st.tuples(inner, inner), max_leaves=9
)
layouts = st.sampled_from(sorted(LAYOUTS))
BATCH = [((0, 1), (2, (0, 1))), (3, 4), 2]
SIZE = 5


def thresholds(**others: float) -> Any:
    from foldbatch.engines.llvm import known_launches  # noqa: PLC0415 - it needs llvmlite

    return mock.patch.multiple(known_launches, **{"FEWEST": 1, "LEAST": 0.0, **others})


@pytest.fixture(autouse=True)
def _small_ones_too() -> Iterator[None]:
    with thresholds(), mock.patch.object(known_products, "SMALLEST", 1):
        yield


def model(*, everywhere: bool = True, again: bool = False, shared: bool = False) -> fb.Block:
    """A tree's state is made of its children's; its loss is that of all nodes, or of the root.

    What is multiplied may be read `again`; the weight may be `shared` with the words, of which it makes states.
    """
    gates = fb.Linear(2 * SIZE, name="gates")

    def state(left: Any, right: Any) -> Any:
        a, b = ops.split(gates(ops.concat([left, right])), 2)
        return ops.tanh(a) * ops.sigmoid(b)

    def node(left: Any, right: Any) -> Any:
        made = state(left, right)
        return made + 0.3 * (left - 0.5 * right) * left if again else made

    tree = fb.ForwardDeclaration(output_type=[SIZE, "float64"])
    words = fb.Scalar("int32") >> fb.Embedding(5, SIZE, name="words", dtype="float64")
    word = words >> fb.Function(lambda x: state(x, x) if shared else ops.tanh(x))
    inner = fb.Record((tree(), tree())) >> fb.Function(node)
    either = fb.OneOf(lambda t: isinstance(t, tuple), {True: inner, False: word})
    loss = fb.Function(lambda h: ops.sum(ops.square(h - 0.3))) >> fb.Loss()
    tree.resolve_to(either >> fb.AllOf(fb.Identity(), loss) >> fb.GetItem(0) if everywhere else either)
    return tree() >> fb.AllOf(fb.Identity(), loss) >> fb.GetItem(0)


def dense(gradient: Any) -> Any:
    return gradient.dense() if isinstance(gradient, SparseRows) else gradient


def launched(program: fb.Program, batch: list[Tree], *, training: bool = True) -> list[KernelKey]:
    """Return the kernels that a batch launches, but those that have no routine."""
    ready = program.engine.ready(fb.program.schedule(program, batch), training=training)
    keys = ready.kernels.bound.keys
    tables = [table for table in ready.tables[:2] if table is not None]
    kernels = [int(row[0]) for table in tables for row in table.launches]
    return [keys[kernel] for kernel in kernels if kernel < len(keys)]


def variants(keys: list[KernelKey]) -> list[tuple[str, str]]:
    """Return which of some kernels are given products of known rows, or leave their cotangents."""
    return [(key.direction, key.stage) for key in keys if key.variant]


FORWARD, BACKWARD = [("forward", "step")], [("backward", "step")]

PROGRAMS: dict[Any, list[fb.Program]] = {}


def programs(layout: str, **form: bool) -> list[fb.Program]:
    """Return a program with known products, and others of the same parameters."""
    key = layout, *form.items()
    if key not in PROGRAMS:
        PROGRAMS[key] = compiled(model(**form), layout=layout)
    return PROGRAMS[key]


def compiled(block: fb.Block, **options: Any) -> list[fb.Program]:
    """Return a block compiled for LLVM, and for the other engines."""
    program = fb.compile(block, "llvm", threads=1, debug=True, **knobs(options))
    return [program, *(fb.compile(block, name, threads=1) for name in ("numpy", "reference"))]


@given(runnables(once=True), st.sampled_from(list(LAYOUTS.values())), st.sampled_from(list(SHARES)))
@settings(max_examples=60, deadline=None)
def test_any_batch_gives_what_the_oracle_gives(runnable: Runnable, layout: Any, share: str | None) -> None:
    """Whatever cells there are, and however the batch is laid out; loops are not fused, as each is compiled."""
    batch = runnable.batch(layout, share)
    engine = unfused.load(runnable.model, EngineSettings(debug=True))
    feeds = [[data.astype(np.int64) for data in columns] for columns in batch.feeds]
    run = engine.forward(engine.ready(batch, training=True), feeds, engine.memory())
    oracle = Evaluation(runnable.model.cells, runnable.model.signatures, batch.merged.trace)
    oracle.forward()
    gradients, expected = run.backward(), oracle.backward()
    assert set(gradients) == set(expected)
    for parameter, gradient in gradients.items():
        np.testing.assert_allclose(dense(gradient), expected[parameter], rtol=1e-9, atol=1e-10)
