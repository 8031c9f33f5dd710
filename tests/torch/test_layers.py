"""Layers taken over from PyTorch compute what they did there."""

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import BlockTypeError

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install -e '.[torch]'")


def outputs(block, examples):
    return fb.compile(block, "numpy").run(examples)


def numbers(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_layer(bias):
    theirs = torch.nn.Linear(3, 2, bias=bias)
    x = numbers(4, 3)
    ours = outputs(fb.Vector(3) >> fb.torch.from_torch(theirs, name="head"), list(x))
    np.testing.assert_allclose(ours, theirs(torch.from_numpy(x)).detach(), atol=1e-6)


@pytest.mark.parametrize("bias", [True, False])
def test_an_lstm_cell(bias):
    theirs = torch.nn.LSTMCell(3, 4, bias=bias)
    x, h, c = numbers(5, 3), numbers(5, 4), numbers(5, 4) / 2
    block = (fb.Vector(3), (fb.Vector(4), fb.Vector(4))) >> fb.torch.from_torch(theirs) >> fb.GetItem(1)
    ours = outputs(block, [(a, (b, d)) for a, b, d in zip(x, h, c, strict=True)])
    states = theirs(torch.from_numpy(x), (torch.from_numpy(h), torch.from_numpy(c)))
    for place, state in enumerate(states):
        np.testing.assert_allclose([own[place] for own in ours], state.detach(), atol=1e-6)


@pytest.mark.parametrize("bias", [True, False])
def test_a_gru_cell(bias):
    theirs = torch.nn.GRUCell(3, 4, bias=bias)
    x, h = numbers(5, 3), numbers(5, 4)
    block = (fb.Vector(3), fb.Vector(4)) >> fb.torch.from_torch(theirs) >> fb.GetItem(0)
    ours = outputs(block, list(zip(x, h, strict=True)))
    np.testing.assert_allclose(ours, theirs(torch.from_numpy(x), torch.from_numpy(h)).detach(), atol=1e-6)


def test_an_embedding_of_doubles_that_is_frozen():
    theirs = torch.nn.Embedding(5, 3, dtype=torch.float64).requires_grad_(False)
    layer = fb.torch.from_torch(theirs, name="words")
    assert not layer.parameters["weight"].trainable
    np.testing.assert_array_equal(outputs(fb.Scalar("int32") >> layer, [4, 0]), theirs.weight[[4, 0]])


def test_what_is_not_supported_is_named():
    with pytest.raises(BlockTypeError, match=r"torch\.nn\.LSTMCell.* found Conv1d"):
        fb.torch.from_torch(torch.nn.Conv1d(1, 1, 1))
    with pytest.raises(BlockTypeError, match="without padding_idx"):
        fb.torch.from_torch(torch.nn.Embedding(3, 2, padding_idx=0))


def test_a_cell_runs_along_sequences():
    theirs = torch.nn.LSTM(3, 4)
    cell = torch.nn.LSTMCell(3, 4)
    for (_, own), other in zip(cell.named_parameters(), theirs.parameters(), strict=True):
        own.data.copy_(other.data)
    x = numbers(5, 3)
    ours = outputs(
        fb.Map(fb.Vector(3)) >> fb.RNN(fb.torch.from_torch(cell)) >> fb.GetItem(0), [list(x), list(x[:2])]
    )
    expected = theirs(torch.from_numpy(x))[0].detach()
    np.testing.assert_allclose(ours[0], expected, atol=1e-6)
    np.testing.assert_allclose(ours[1], expected[:2], atol=1e-6)
