"""Many clients at once, good, bad and gone: nobody's answer is touched by what others sent."""

from __future__ import annotations

import asyncio
import subprocess

import pytest

from tests.serve.clients import load, server, trees
from tests.serve.conftest import NEEDS, save_model

pytest.importorskip("foldbatch.serve.running", reason=NEEDS)
EACH = 8  # requests of a client


def test_each_of_64_clients_gets_its_own_answers(tmp_path):
    path = tmp_path / "model.safetensors"
    save_model(path, size=16, scale=8)
    texts, wanted = trees(path, 200, "numpy")
    with server(path, "--backend", "numpy", log=subprocess.PIPE) as (process, port):
        met = asyncio.run(load(port, texts, wanted, 64, lambda asked: asked >= EACH))
        process.terminate()
        assert process.stderr.read() == ""
    assert not [what for what in met if what.startswith("wrong")]
    assert min(met[what] for what in ("right", "refused alone", "refused whole", "left", "half-closed")) > 5
    assert sum(met.values()) > 60 * EACH
