"""Dropout trains with a share of elements missing, the same however the batch is run; inference has them all."""

from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.params.parameters import dense
from tests.blocks.results import yields
from tests.knobs import knobs

SIZE = 500
LOSS = fb.Function(ops.sum) >> fb.Loss()


def weighted(block: fb.Block, size: int = SIZE) -> fb.Block:
    """A loss whose gradient by ``w`` is what a block makes of ones, summed up over the batch."""
    weight = fb.Parameter(fb.types.TensorType((size,), "float64"), 1.0, "w")
    return fb.Function(lambda x: x * weight) >> block >> LOSS


def kept(program: fb.Program, examples: list[Any], step: int = 0) -> np.ndarray:
    return dense(program.value_and_grad(examples, step=step)[1]["w"])


ONES = [1.0] * SIZE
READ = fb.Vector(SIZE, "float64")


def test_inference_passes_everything_on() -> None:
    yields(fb.Vector(2) >> fb.Dropout(np.float32(0.5)), ([1, 2], [1.0, 2.0]), ([3, -4], [3.0, -4.0]))
    yields(fb.Tensor([2, 1]) >> fb.Dropout(0.9), ([[1], [2]], [[1.0], [2.0]]))
    program = fb.compile(READ >> weighted(fb.Dropout(0.5)))
    assert program.run([ONES], losses=True).loss == SIZE


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_training_drops_a_share_and_scales_the_rest_up(rate: float) -> None:
    found = kept(fb.compile(READ >> weighted(fb.Dropout(rate))), [ONES])
    assert set(np.unique(found.round(9))) == {0.0, round(1 / (1 - rate), 9)}
    share = (found == 0).mean()
    assert abs(share - rate) < 4 * np.sqrt(rate * (1 - rate) / SIZE)


def test_the_value_and_the_gradient_drop_the_same() -> None:
    program = fb.compile(READ >> weighted(fb.Dropout(0.5)))
    loss, gradients = program.value_and_grad([ONES], step=3)
    assert loss == pytest.approx(gradients["w"].sum())


def test_each_step_draws_anew_and_a_step_again_the_same() -> None:
    program = fb.compile(READ >> weighted(fb.Dropout(0.5)))
    by_step = [kept(program, [ONES], step) for step in (0, 1, 2)]
    assert (by_step[0] != by_step[1]).any()
    assert (by_step[1] != by_step[2]).any()
    for step in (2, 0):
        assert (kept(program, [ONES], step) == by_step[step]).all()
    counted = [program.value_and_grad([ONES])[1]["w"] for _ in range(3)]
    assert all((found == right).all() for found, right in zip(counted, by_step, strict=True))


def test_equal_examples_and_equal_calls_drop_each_their_own() -> None:
    """Although equal calls on data alone would be computed once."""
    block = READ >> weighted(fb.Dropout(0.5))
    assert len(set(kept(fb.compile(block), [ONES, ONES, ONES]).round(9))) == 4
    mapped = fb.Map(READ >> weighted(fb.Dropout(0.5)))
    assert len(set(kept(fb.compile(mapped), [[ONES] * 3]).round(9))) == 4
    words = fb.Map(
        fb.Scalar("int32") >> fb.Embedding(2, SIZE, init="ones", dtype="float64") >> fb.Dropout(0.5)
    )
    gradient = dense(fb.compile(words >> fb.Map(LOSS)).value_and_grad([[1, 1, 1]])[1]["embedding.weight"])
    assert len(set(gradient[1].round(9))) == 4
    assert not gradient[0].any()


def test_two_places_drop_each_their_own_be_it_the_same_layer() -> None:
    layer = fb.Dropout(0.5)
    for a, b in ((layer, layer), (layer, fb.Dropout(0.5))):
        both = fb.AllOf(a, b) >> fb.Function(lambda x, y: x + 4 * y)
        found = kept(fb.compile(READ >> weighted(both)), [ONES])
        assert set(found.round(9)) == {0.0, 2.0, 8.0, 10.0}


def test_other_models_compiled_before_change_nothing() -> None:
    def made() -> np.ndarray:
        return kept(
            fb.compile(READ >> weighted(fb.AllOf(fb.Dropout(0.5), fb.Dropout(0.5)) >> fb.Concat())), [ONES]
        )

    first = made()
    fb.compile(fb.Vector(3) >> fb.Dropout(0.1))
    assert (made() == first).all()


def a_tree(dropout: fb.Block) -> fb.Block:
    tree = fb.ForwardDeclaration(output_type=[3, "float64"], name="tree")
    leaf = fb.Scalar("int32") >> fb.Embedding(5, 3, dtype="float64", name="words") >> dropout
    join = fb.Concat() >> fb.Linear(3, "tanh", name="join") >> dropout
    pair = fb.Record((tree(), tree())) >> join
    tree.resolve_to(fb.OneOf(lambda x: isinstance(x, list), {False: leaf, True: pair}))
    return tree() >> LOSS


TREES = [1, [1, 2], [[1, 1], [3, [4, 1]]], [[2, 3], 1], 1]


@pytest.mark.parametrize(
    "options",
    [
        {"batched": False},
        {"backend": "reference"},
        {"policy": "by_depth"},
        {"layout": "producer"},
        {"threads": 3},
        {"debug": True},
    ],
    ids=str,
)
def test_a_batch_drops_what_its_examples_would_drop_however_it_is_run(options: dict[str, Any]) -> None:
    block = a_tree(fb.Dropout(0.3))
    program, other = fb.compile(block), fb.compile(block, **knobs(options))
    for step in (0, 7):
        loss, gradients = program.value_and_grad(TREES, step=step)
        found, theirs = other.value_and_grad(TREES, step=step)
        assert found == pytest.approx(loss, rel=1e-10)
        for name, gradient in gradients.items():
            np.testing.assert_allclose(dense(theirs[name]), dense(gradient), rtol=1e-9, atol=1e-12)
