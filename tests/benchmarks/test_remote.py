"""A peer's process: it computes what we do, and ends with the context; what fails is told in our words."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

from benchmarks.remote import BARE, FOLDERS, Remote
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


def test_an_interpreter_that_cannot_be_run_is_an_error() -> None:
    with pytest.raises(BackendError, match="--peer-python torch=PATH"):
        Remote("torch", "/no/such/python")


def test_a_process_that_dies_is_an_error_with_its_last_words(tmp_path) -> None:
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho first >&2\necho no room left >&2\nexit 3\n", encoding="ascii")
    script.chmod(0o755)
    with pytest.raises(BackendError, match="DyNet peer: .* ended with status 3: no room left"):
        Remote("dynet", str(script))


@pytest.mark.parametrize("peer", ["dynet", "jax"])
def test_a_library_that_is_missing_is_said(peer) -> None:
    if find_spec(peer):
        pytest.skip(f"{peer} is installed")
    with pytest.raises(BackendError, match=rf"to be installed.*--peer-python {peer}=PATH"):
        Remote(peer)


def test_another_interpreter_needs_numpy_alone() -> None:
    """Neither our package as a whole nor what it depends on is imported there."""
    absent = "import sys; sys.modules.update(dict.fromkeys(('rich', 'threadpoolctl', 'dynet_config')));"
    found = subprocess.run(
        [sys.executable, "-c", absent + BARE, *FOLDERS, "dynet"],
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    assert '"missing"' in found.stdout
