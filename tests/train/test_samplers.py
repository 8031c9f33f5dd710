"""Samplers: every example once an epoch, costs within limits, like with like, and resumption."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch.train.samplers import Sampler, bucketed, heights, shuffled, sizes, within_budget
from foldbatch.train.schedules import chained, cosine, exponential, one_cycle, stepwise, warm_up
from foldbatch.trees import Tree


def tree_of(height: int, width: int = 0) -> Tree:
    """A chain of a height, with `width` more leaves below its root."""
    chain: tuple = ("x", "w")
    for _ in range(height):
        chain = ("x", chain)
    return Tree.from_nested(chain if not width else (*chain, *[("y", "w")] * width))


@st.composite
def samplers(draw: st.DrawFn) -> Sampler:
    costs = draw(st.lists(st.integers(0, 20), max_size=30))
    keys = draw(st.none() | st.lists(st.integers(0, 4), min_size=len(costs), max_size=len(costs)))
    return Sampler(costs, draw(st.integers(1, 30)), keys=keys, seed=draw(st.integers(-5, 2**70)))


@given(samplers(), st.integers(0, 3))
def test_every_example_is_drawn_once_an_epoch(sampler: Sampler, number: int) -> None:
    drawn = [i for batch in sampler.epoch(number) for i in batch]
    assert sorted(drawn) == list(range(len(sampler.costs)))
    assert all(type(i) is int for i in drawn)


@given(samplers(), st.integers(0, 3))
def test_no_batch_exceeds_its_limit_but_that_of_a_single_example(sampler: Sampler, number: int) -> None:
    for batch in sampler.epoch(number):
        assert batch
        assert len(batch) == 1 or sampler.costs[batch].sum() <= sampler.limit


@given(samplers(), st.integers(0, 3))
def test_no_batch_ends_while_its_successor_would_fit(sampler: Sampler, number: int) -> None:
    """In the order of the keys, in which batches are filled."""
    batches = sampler.epoch(number)
    if np.ptp(sampler.keys) if len(batches) else False:
        return  # the batches themselves are shuffled
    for batch, after in pairwise(batches):
        assert sampler.costs[batch].sum() + sampler.costs[after[0]] > sampler.limit


@given(samplers(), st.integers(0, 3))
def test_batches_hold_neighbours_in_the_order_of_keys(sampler: Sampler, number: int) -> None:
    spans = sorted((sampler.keys[b].min(), sampler.keys[b].max()) for b in sampler.epoch(number))
    assert all(before[1] <= after[0] for before, after in pairwise(spans))


def test_an_epoch_is_the_same_on_every_machine() -> None:
    """Numbers written down once; a change of them would make saved states mean something else."""
    sampler = Sampler([1] * 12, 5, seed=7)
    assert sampler.epoch(0) == [[3, 1, 11, 0, 7], [10, 2, 8, 5, 6], [9, 4]]
    assert sampler.epoch(3) == [[8, 10, 2, 6, 9], [4, 5, 11, 3, 1], [0, 7]]
    alike = Sampler([1] * 12, 3, keys=[0, 1, 2] * 4, seed=-1)
    assert alike.epoch(10**6) == [[2, 8, 5], [1, 7, 11], [6, 10, 4], [0, 3, 9]]


def test_epochs_seeds_and_places_differ() -> None:
    """Over many epochs each example stands everywhere about equally often: 8 * 8 counts of 250."""
    sampler = shuffled(range(8), 8, seed=5)
    epochs = np.array([sampler.epoch(number)[0] for number in range(2000)])
    counts = np.array([np.bincount(column, minlength=8) for column in epochs.T])
    assert ((counts - 250) ** 2 / 250).sum() < 120  # chi-square with 49 degrees of freedom
    assert (np.diff(epochs, axis=0) != 0).any(axis=1).mean() > 0.99
    others = [tuple(shuffled(range(20), 20, seed).epoch(0)[0]) for seed in range(50)]
    assert len(set(others)) == 50


def test_sizes_and_heights_of_trees_and_prepared_examples() -> None:
    program = fb.compile(fb.Map(fb.Scalar()) >> fb.Reduce(fb.Function(lambda a, b: a + b)))
    prepared = program.prepare([[1.0] * n for n in (1, 2, 8, 5)])
    assert sizes(prepared).tolist() == [example.trace.size for example in prepared]
    assert heights(prepared).tolist() == [0, 0, 2, 2]  # levels of pairs, counted from 0
    trees = [tree_of(3), tree_of(0), tree_of(2, width=5)]
    assert (sizes(trees).tolist(), heights(trees).tolist()) == ([4, 1, 8], [3, 0, 2])
    assert sizes([trees[1], prepared[0]]).tolist() == [1, prepared[0].trace.size]


def test_like_heights_share_a_batch() -> None:
    """The levels of an epoch, a batch's being those of its tallest, are as few as they can be."""
    rng = np.random.default_rng(0)
    trees = [tree_of(int(h)) for h in rng.integers(0, 30, 200)]

    def levels(sampler: Sampler) -> int:
        return sum(max(trees[i].height for i in batch) for batch in sampler.epoch(0))

    assert levels(bucketed(trees, 10)) == sum(sorted(t.height for t in trees)[9::10])
    assert levels(bucketed(trees, 10)) < 0.6 * levels(shuffled(trees, 10))


def test_a_budget_counts_nodes() -> None:
    trees = [tree_of(h) for h in (9, 2, 30, 4, 0, 7)]
    batches = within_budget(trees, 10).epoch(0)
    assert [2] in batches  # 31 nodes, alone
    assert all(sum(trees[i].size for i in b) <= 10 for b in batches if b != [2])


N = 40


def factors(schedule):
    return np.array([schedule(count) for count in range(N)])


TORCH = {
    "stepwise": (stepwise(7, 0.3), lambda t, o: t.StepLR(o, 7, 0.3)),
    "exponential": (exponential(0.9), lambda t, o: t.ExponentialLR(o, 0.9)),
    "warm_up": (warm_up(np.int64(10), 0.2), lambda t, o: t.LinearLR(o, 0.2, total_iters=10)),
    "cosine": (cosine(N, 0.1), lambda t, o: t.CosineAnnealingLR(o, N, eta_min=0.05)),
    "one_cycle": (one_cycle(N), lambda t, o: t.OneCycleLR(o, 0.5, N, cycle_momentum=False)),
    "chained": (
        chained([warm_up(5), stepwise(3)], [5]),
        lambda t, o: t.SequentialLR(o, [t.LinearLR(o, 0.1, total_iters=5), t.StepLR(o, 3)], [5]),
    ),
}


@pytest.mark.parametrize("name", TORCH)
@pytest.mark.filterwarnings("ignore")
def test_a_schedule_is_torchs(name):
    torch = pytest.importorskip("torch", reason="needs torch")
    schedule, make = TORCH[name]
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.5)
    theirs = make(torch.optim.lr_scheduler, optimizer)
    rates = []
    for _ in range(N - 1):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        theirs.step()
    np.testing.assert_allclose(0.5 * factors(schedule)[:-1], rates, rtol=1e-9)
