"""Products taken out of a recursion change nothing but the time, whatever is known before it starts."""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldbatch.engines.engine import EngineSettings
from foldbatch.engines.reference import Evaluation
from foldbatch.params.parameters import SparseRows
from foldbatch.scheduler.layout import LAYOUTS
from foldbatch.scheduler.sharing import SHARES
from tests.engines import unfused
from tests.engines.random_cells import Runnable, runnables

pytestmark = [
    pytest.mark.llvm,
    pytest.mark.skipif(find_spec("llvmlite") is None, reason="llvmlite is not installed"),
]


def thresholds(**others: float) -> Any:
    from foldbatch.engines.llvm import known_launches  # noqa: PLC0415 - it needs llvmlite

    return mock.patch.multiple(known_launches, **{"FEWEST": 1, "LEAST": 0.0, **others})


@pytest.fixture(autouse=True)
def _small_ones_too() -> Iterator[None]:
    with thresholds(), mock.patch("foldbatch.engines.llvm.known.SMALLEST", 1):
        yield


def dense(gradient: Any) -> Any:
    return gradient.dense() if isinstance(gradient, SparseRows) else gradient


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
