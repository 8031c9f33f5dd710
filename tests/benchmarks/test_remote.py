"""A peer's process: it computes what we do, and ends with the context; what fails is told in our words."""

from __future__ import annotations

import pytest

from benchmarks.remote import Remote
from benchmarks.task import Task
from benchmarks.variants import OURS
from foldbatch.errors import BackendError
from tests.benchmarks.flat_trees import batch_loss, random_parameters, random_trees


@pytest.mark.parametrize("peer", [OURS, "torch"])
def test_a_process_computes_the_model(peer, tmp_path) -> None:
    if peer == "torch":
        pytest.importorskip("torch", reason="needs PyTorch")
    trees, parameters = random_trees(0, [4, 2]), random_parameters(1, 3, 9, "float32")
    Task(3, parameters, [trees]).save(tmp_path / "task.npz")
    with Remote(peer) as remote:
        first = remote.variants[0]
        ready = remote.ask("setup", file=str(tmp_path / "task.npz"), variants=[first.name])
        assert ready["memory"] >= remote.imported > 0
        expected = batch_loss(trees, parameters, 3)
        assert remote.ask("loss", variant=first.name, batch=0)["loss"] == pytest.approx(expected, rel=1e-4)
        assert remote.ask("train", variant=first.name, batches=[0])["seconds"] > 0
        assert remote.ask("loss", variant=first.name, batch=0)["loss"] < expected
        with pytest.raises(BackendError, match="expected an answer, found"):
            remote.ask("loss", variant="another", batch=0)
    assert remote._process.returncode == 0
