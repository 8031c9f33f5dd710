"""Processes that a launcher started, and that nothing connects; moves that bring a module to where it is."""

import itertools

import pytest

import foldbatch as fb
from foldbatch.errors import RankWarning

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install -e '.[torch]'")

from foldbatch.torch import ranks  # noqa: E402
from tests.torch.models import TREES, tree_of  # noqa: E402

STARTED = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


def test_a_process_that_trains_alone_among_others_is_told_once(monkeypatch):
    module = fb.torch.Module(tree_of(), "numpy")
    monkeypatch.setattr(ranks, "_CALLS", itertools.count())
    for name, value in STARTED.items():
        monkeypatch.setenv(name, value)
    for _ in range(3):
        with torch.no_grad():
            module(TREES)
    module(TREES)
    module(TREES)
    with pytest.warns(RankWarning, match="connects the 2 processes that were started, found none: each"):
        module(TREES)
    module(TREES)


def test_so_is_none_that_was_started_alone(monkeypatch):
    module = fb.torch.Module(tree_of(), "numpy")
    monkeypatch.setattr(ranks, "_CALLS", itertools.count())
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    for _ in range(4):
        module(TREES)


def test_a_numbered_cpu_is_no_other_place():
    """As Accelerate asks for."""
    module = fb.torch.Module(tree_of(), "numpy")
    parameter = module.get_parameter("join.bias")
    torch.nn.Sequential(module, torch.nn.Linear(4, 2)).to("cpu:0")
    assert module.get_parameter("join.bias") is parameter
    module(TREES)
