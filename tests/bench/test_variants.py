"""Peers' variants have names of their own and threads as they say."""

from __future__ import annotations

import pytest

from foldbatch.bench.task import Task
from foldbatch.bench.variants import PEERS
from tests.bench.flat_trees import batch_loss, random_parameters, random_trees


@pytest.mark.parametrize("peer", PEERS)
def test_variants_have_names_of_their_own(peer) -> None:
    names = [variant.name for variant in PEERS[peer].variants()]
    assert len(set(names)) == len(names) >= 1


def test_pytorch_has_each_way_on_one_thread_and_on_all() -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    trees, parameters = random_trees(0, [4, 2]), random_parameters(1, 3, 9, "float32")
    task = Task(3, parameters, [trees])
    before = torch.get_num_threads()
    for variant in PEERS["torch"].variants():
        variant.set_threads()
        assert f"{torch.get_num_threads()} thread" in variant.name
        assert variant.make(task).loss(trees) == pytest.approx(batch_loss(trees, parameters, 3), rel=1e-5)
        assert variant.batched is not variant.name.startswith("per node")
    torch.set_num_threads(before)
