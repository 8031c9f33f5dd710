"""Layers of PyTorch are taken over, and parameters are shared with it."""

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import BlockTypeError, ParameterError

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install -e '.[torch]'")

from tests.torch.models import tree_of  # noqa: E402


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


@pytest.fixture(scope="module")
def model(form):
    return torch.nn.Sequential(fb.torch.Module(tree_of(), "numpy"), torch.nn.Linear(4, 2))


MOVES = {
    "float64 on cpu": lambda model: model.double(),
    "float16 on cpu": lambda model: model.half(),
    "float32 on meta": lambda model: model.to("meta"),
    "other memory": lambda model: model.share_memory(),
}


@pytest.mark.parametrize("found", MOVES)
def test_what_would_part_a_module_from_its_program_is_refused(model, found):
    with pytest.raises(ParameterError, match=f"own memory, found a move to {found}; move the other modules"):
        MOVES[found](model)
    bias, params = model[0].get_parameter("join.bias"), model[0].program.params
    with torch.no_grad():
        bias += 1
        np.testing.assert_array_equal(params["join.bias"], bias)
        params["join.bias"] = np.zeros(4)
        assert not bias.any()


class Around(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.Linear(3, 3)
        self.tree = fb.torch.Module(fb.Vector(3) >> fb.Linear(2, name="pair.head"), "numpy")
        self.tree.own = torch.nn.Linear(2, 2)
        self.last = torch.nn.Linear(2, 2)


def test_a_refused_move_names_the_parameter_and_what_has_moved_by_then():
    around = Around()
    moved = (
        r"; now encoder\.weight, encoder\.bias have moved: model\.to\('cpu', torch\.float32\) moves them back"
    )
    with pytest.raises(ParameterError, match=r"^tree\.pair\.head\.weight: expected .*" + moved):
        around.half()
    assert {str(x.dtype) for x in around.encoder.parameters()} == {"torch.float16"}
    around.to("cpu", torch.float32)
    assert {str(x.dtype) for x in around.parameters()} == {"torch.float32"}
    with pytest.raises(ParameterError, match=r"^pair\.head\.weight: .* of the block's layers and data$"):
        around.tree.half()  # of a module inside of it nothing has moved
    assert {str(x.dtype) for x in around.parameters()} == {"torch.float32"}
    with pytest.raises(ParameterError, match=r"^pair\.head\.weight: "):
        around.tree.pair.head.half()
    assert around.encoder.half().weight.dtype == torch.float16


def test_loading_copies_and_never_assigns(model):
    state = {name: torch.ones_like(value) for name, value in model.state_dict().items()}
    with pytest.raises(ParameterError, match="leave assign out"):
        model.load_state_dict(state, assign=True)
    model.load_state_dict(state)
    assert model[0].program.params["join.bias"].tolist() == [1, 1, 1, 1]


def test_names_of_methods_can_be_names_of_parameters():
    scale = fb.Parameter([], init=2.0, name="forward")
    layer = fb.Linear(1, name="loss")
    module = fb.torch.Module(fb.Scalar() >> fb.Function(lambda x: x * scale), "numpy")
    assert list(module.state_dict()) == ["forward"]
    assert module([3.0]).tolist() == [6]
    assert sorted(fb.torch.Module(fb.Vector(1) >> layer, "numpy").state_dict()) == [
        "loss.bias",
        "loss.weight",
    ]


def test_parameters_that_were_replaced_are_refused():
    module = fb.torch.Module(tree_of(), "numpy")
    parameters = dict(module.named_parameters())
    with pytest.raises(ParameterError, match="another tensor; copy values into it"):
        torch.func.functional_call(module, {k: torch.zeros_like(v) for k, v in parameters.items()}, ([1],))
    assert module([1]).shape[0] == 1
    vector = torch.nn.utils.parameters_to_vector(parameters.values()).detach()
    torch.nn.utils.vector_to_parameters(vector, parameters.values())
    with pytest.raises(ParameterError, match="another tensor; copy values into it"):
        module([1])


def test_an_empty_batch_has_gradients_of_zero():
    module = fb.torch.Module(tree_of(), "numpy")
    module([]).sum().backward()
    assert all(not parameter.grad.any() for parameter in module.parameters())
