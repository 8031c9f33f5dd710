"""Parameters of PyTorch are the program's own memory, and stay that."""

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import ParameterError

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install -e '.[torch]'")

from tests.torch.models import tree_of  # noqa: E402


@pytest.fixture(scope="module")
def model():
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
    shared = model[0].get_parameter("join.bias").detach().numpy()
    assert np.shares_memory(shared, model[0].program.params["join.bias"])


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
