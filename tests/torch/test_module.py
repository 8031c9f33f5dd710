"""A block as a module of PyTorch: what it yields, what trains it, what copies it."""

import copy
import inspect
import io
import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given, settings

import foldbatch as fb
from foldbatch.errors import BlockTypeError, ExampleError, ParameterError
from foldbatch.params.parameters import dense
from tests.backends import TESTED
from tests.programs import programs

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install -e '.[torch]'")

from tests.torch.models import TREES, loss_of, squared, tree_of  # noqa: E402


def gradients_of(module):
    return {name: parameter.grad.to_dense().clone() for name, parameter in module.named_parameters()}


@pytest.fixture(scope="module")
def module(form):
    return fb.torch.Module(tree_of(), TESTED)


@pytest.fixture(scope="module")
def dropping(form):
    return fb.torch.Module(loss_of(tree_of(dropout=0.5)), TESTED)


def test_nodes_have_the_gradients_of_a_sum_over_nodes():
    nodes = fb.torch.Module(fb.blocks.Collected(tree_of()) >> fb.GetItem(1), TESTED)
    values, examples, places = nodes.nodes(TREES)
    assert examples.tolist() == [1, 2, 2, 2, 2]
    assert places.tolist() == [0, 0, 1, 2, 3]
    (values[1:3] ** 2).sum().backward()
    found = gradients_of(nodes)
    nodes.zero_grad()
    result = nodes(TREES)
    ((result[2][0] ** 2).sum() + (result[2][1] ** 2).sum()).backward()
    for name, gradient in gradients_of(nodes).items():
        torch.testing.assert_close(gradient, found[name])
    with pytest.raises(BlockTypeError, match="Collected"):
        fb.torch.Module(fb.Vector(2), "numpy").nodes([[1, 2]])


def test_dropout_drops_alike_on_both_ways_and_not_in_eval(dropping):
    dropping.train()
    program = dropping.program
    dropping.zero_grad()
    loss = dropping.loss(TREES)
    loss.backward()
    same, gradients = program.value_and_grad(TREES, step=program._drawn)
    assert loss.item() == pytest.approx(same, rel=1e-6)
    for name, gradient in gradients_of(dropping).items():
        np.testing.assert_allclose(gradient, dense(gradients[name]), rtol=1e-5, atol=1e-7)
    assert dropping.loss(TREES).item() != dropping.loss(TREES).item()
    with torch.no_grad():
        assert dropping.loss(TREES).item() != dropping.loss(TREES).item()
    dropping.eval()
    with torch.no_grad():
        quiet = dropping.loss(TREES).item()
    assert dropping.loss(TREES).item() == pytest.approx(quiet, rel=1e-6)  # with gradients, yet nothing drops


def test_a_graph_that_is_retained_can_be_run_backward_twice(module):
    module.zero_grad()
    loss = (module(TREES) ** 2).sum()
    loss.backward(retain_graph=True)
    once = gradients_of(module)
    loss.backward()
    for name, gradient in gradients_of(module).items():
        torch.testing.assert_close(gradient, 2 * once[name])


def test_parameters_changed_before_the_backward_pass_are_refused(module):
    loss = (module(TREES) ** 2).sum()
    with torch.no_grad():
        module.get_parameter("join.bias").add_(0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_gradcheck():
    doubles = fb.torch.Module(tree_of(2, "float64"), "numpy")
    pair = fb.torch.Module(
        (fb.Vector(3, "float64") >> fb.Linear(2, "tanh"), fb.Vector(2, "float64")) >> fb.Concat(), "numpy"
    )
    x, y = (torch.randn(2, n, dtype=torch.float64, requires_grad=True) for n in (3, 2))
    parameters = [*doubles.parameters(), *pair.parameters()]

    def whole(x, y, *_):
        return doubles(TREES[:3]), pair(list(zip(x, y, strict=True)))

    assert torch.autograd.gradcheck(whole, (x, y, *parameters))


OPTIMIZERS = {
    "SGD": lambda ps: torch.optim.SGD(ps, 0.1, momentum=0.9),
    "Adam": lambda ps: torch.optim.Adam(ps, 0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_of_pytorch_train_the_programs_own_arrays(name):
    module = fb.torch.Module(tree_of(), TESTED)
    optimizer = OPTIMIZERS[name](module.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    first = None
    for _ in range(8):
        optimizer.zero_grad()
        loss = ((module(TREES) - 1) ** 2).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        first = first or loss.item()
    assert loss.item() < 0.9 * first
    for key, parameter in module.named_parameters():
        np.testing.assert_array_equal(module.program.params[key], parameter.detach())
    module.program.params["join.bias"] = np.arange(4)
    assert module.get_parameter("join.bias").tolist() == [0, 1, 2, 3]


def test_sparse_gradients_train_as_dense_ones():
    modules = [fb.torch.Module(tree_of(), TESTED, sparse=sparse, seed=0) for sparse in (True, False)]
    for module, sparse in zip(modules, (True, False), strict=True):
        words = module.get_parameter("words.weight")
        optimizer = (torch.optim.SparseAdam if sparse else torch.optim.Adam)([words], 0.1, eps=1e-12)
        (module(TREES[1:3]) ** 2).sum().backward()
        assert words.grad.is_sparse == sparse
        optimizer.step()
    torch.testing.assert_close(*(module.get_parameter("words.weight")[:7] for module in modules))


def test_state_dicts_and_averages(module):
    assert list(module.state_dict()) == list(module.program.params)
    other = fb.torch.Module(tree_of(), "numpy", seed=1)
    other.load_state_dict(module.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(other(TREES), module(TREES), rtol=1e-5, atol=1e-6)
    averaged = torch.optim.swa_utils.AveragedModel(other)
    with torch.no_grad():
        kept = other(TREES)
        averaged.update_parameters(other)
        other.get_parameter("join.bias").add_(2)
        averaged.update_parameters(other)
        torch.testing.assert_close(
            averaged.module.get_parameter("join.bias"), other.get_parameter("join.bias") - 1
        )
        np.testing.assert_allclose(
            averaged.module.program.params["join.bias"] + 1, other.program.params["join.bias"], rtol=1e-6
        )
        assert not torch.allclose(averaged(TREES), kept)


def test_copies_compute_alike_and_apart():
    module = fb.torch.Module(loss_of(tree_of(dropout=0.5)), "numpy", sparse=True)
    module.get_parameter("join.bias").requires_grad_(False)
    module.loss(TREES)
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    copies = [copy.deepcopy(module), pickle.loads(pickle.dumps(module)), torch.load(file, weights_only=False)]
    torch.manual_seed(5)
    expected = module.loss(TREES).item()
    for other in copies:
        torch.manual_seed(5)
        assert other.loss(TREES).item() == expected
        assert other.sparse
        assert not other.get_parameter("join.bias").requires_grad
        other.program.params["join.bias"] = np.ones(4)
    assert module.program.params["join.bias"].max() == 0


def test_what_only_the_loss_reads_has_no_gradient_of_results():
    judged = fb.Linear(1, name="judge") >> fb.Function(squared) >> fb.Loss()
    module = fb.torch.Module(
        fb.Vector(2) >> fb.Linear(2, name="out") >> fb.AllOf(fb.Identity(), judged) >> fb.GetItem(0), TESTED
    )
    module([[1, 2]]).sum().backward()
    assert module.get_parameter("out.bias").grad is not None
    assert module.get_parameter("judge.bias").grad is None
    module.loss([[1, 2]]).backward()
    assert module.get_parameter("judge.weight").grad is not None


def test_examples_may_be_prepared_by_workers(module):
    loader = torch.utils.data.DataLoader(TREES, batch_size=2, collate_fn=module.prepare, num_workers=1)
    results = torch.cat([module(batch) for batch in loader])
    torch.testing.assert_close(results, module(TREES))
    torch.testing.assert_close(module(module.plan(TREES)), module(TREES))
    summing = fb.torch.Module(loss_of(fb.Vector(2)), "numpy")
    planned = pickle.loads(pickle.dumps(summing.plan([[1, 2]])))
    assert summing.loss(planned).item() == 5
    with pytest.raises(ExampleError, match="data that stay, found a tensor that requires gradients"):
        summing.prepare([torch.ones(2, requires_grad=True)])


def test_a_frozen_parameter_cannot_be_made_to_train():
    frozen = fb.torch.Module(fb.Scalar("int32") >> fb.Embedding(3, 2, trainable=False, name="words"), "numpy")
    assert not frozen([1]).requires_grad
    frozen.requires_grad_()
    with pytest.raises(ParameterError, match="frozen"):
        frozen([1])


def test_lightning_trains_it(tmp_path):
    lightning = pytest.importorskip("lightning", reason="needs Lightning: pip install -e '.[launchers]'")

    class Squares(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.tree = fb.torch.Module(tree_of(), "numpy")

        def training_step(self, batch):
            return (self.tree(batch) ** 2).sum()

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), 0.01)

    squares = Squares()
    before = (squares.tree(TREES) ** 2).sum().item()
    loader = torch.utils.data.DataLoader(TREES, batch_size=2, collate_fn=squares.tree.prepare)
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "plugins": [
            lightning.fabric.plugins.environments.LightningEnvironment()
        ],  # no other launcher is asked
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = lightning.Trainer(max_epochs=3, accelerator="cpu", default_root_dir=tmp_path, **quiet)
        trainer.fit(squares, loader)
    assert (squares.tree(TREES) ** 2).sum().item() < before


def tensors_in(value):
    """The tensors of floats in a result, or what stands in their places in one of NumPy."""
    if isinstance(value, tuple | list):
        return [x for part in value for x in tensors_in(part)]
    return [value] if isinstance(value, torch.Tensor | np.ndarray | np.generic) else []


def ones_like(value):
    if isinstance(value, tuple | list):
        return type(value)(map(ones_like, value))
    return np.ones_like(value) if isinstance(value, np.ndarray) and value.dtype.kind == "f" else None


@settings(max_examples=6)
@given(programs(dropout=True).filter(lambda program: "Broadcast" not in repr(program.block)))
def test_results_and_gradients_of_any_program_are_its_own(drawn):
    module = fb.torch.Module(drawn.block, "numpy", seed=drawn.seed).eval()
    results, expected = list(module(drawn.examples)), list(module.program.run(drawn.examples))
    ours, theirs = tensors_in(results), tensors_in(expected)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one.detach(), other, rtol=1e-4, atol=1e-5)
    if not module._phases and any(tensor.requires_grad for tensor in ours):
        sum(tensor.sum() for tensor in ours if tensor.requires_grad).backward()
        gradients = module.program.vjp(drawn.examples, [ones_like(result) for result in expected]).gradients
        for name, parameter in module.named_parameters():
            if parameter.grad is not None:
                np.testing.assert_allclose(parameter.grad, dense(gradients[name]), rtol=1e-3, atol=1e-4)


def test_pytorchs_seed_decides_first_values_where_none_is_given():
    def drawn(pytorchs=None, **options):
        if pytorchs is not None:
            torch.manual_seed(pytorchs)
        return fb.torch.Module(tree_of(), "numpy", **options).get_parameter("join.weight").detach().clone()

    first, second, again, other = drawn(0), drawn(), drawn(0), drawn(1)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert not torch.equal(first, other)
    assert torch.equal(drawn(0, seed=7), drawn(1, seed=7))


def test_modules_share_layers_that_have_values_unless_they_are_fresh():
    block = tree_of()
    one, shared = fb.torch.Module(block, "numpy"), fb.torch.Module(block, "numpy")
    assert one.get_parameter("join.weight") is shared.get_parameter("join.weight")
    fresh = fb.torch.Module(block, "numpy", fresh=True)
    with torch.no_grad():
        fresh.get_parameter("join.bias").add_(3)
    assert not torch.equal(fresh.get_parameter("join.weight"), one.get_parameter("join.weight"))
    assert one.get_parameter("join.bias").abs().max() == 0
    twin = copy.deepcopy(fresh)
    assert torch.equal(twin.get_parameter("join.bias"), fresh.get_parameter("join.bias"))
    torch.testing.assert_close(twin(TREES), fresh(TREES))


def test_a_parameter_that_no_call_has_read_has_no_gradient():
    heads = {name: fb.GetItem(1) >> fb.Vector(2) >> fb.Linear(1, name=name) for name in "ab"}
    module = fb.torch.Module(fb.OneOf(fb.GetItem(0), heads), TESTED)
    module([("a", [1, 2])]).sum().backward()
    assert {name for name, parameter in module.named_parameters() if parameter.grad is None} == {
        "b.weight",
        "b.bias",
    }


def test_a_module_that_samples_draws_anew_as_pytorchs_generator_decides():
    module = fb.torch.Module(fb.Vector(2) >> fb.Function(lambda x: x + fb.ops.random((2,))), TESTED)
    for training in (True, False):
        module.train(training)
        turns = []
        for _ in range(2):
            torch.manual_seed(3)
            turns += [module([[0, 0]]), module([[0, 0]])]
        assert torch.equal(turns[0], turns[2])
        assert torch.equal(turns[1], turns[3])
        assert not torch.equal(turns[0], turns[1])


def test_help_is_about_this_module_and_not_about_pytorchs():
    assert fb.torch.Module.__init__.__doc__ != torch.nn.Module.__init__.__doc__
    assert "plain function" in inspect.getdoc(fb.torch.Module.__init__)


def test_workers_of_a_loader_plan_batches(module):
    loader = torch.utils.data.DataLoader(TREES, batch_size=2, collate_fn=module.collate, num_workers=2)
    batches = list(loader)
    assert [len(batch) for batch in batches] == [len(TREES[k : k + 2]) for k in range(0, len(TREES), 2)]
    torch.testing.assert_close(torch.cat([module(batch) for batch in batches]), module(TREES))
    again = pickle.loads(pickle.dumps(batches[0]))
    torch.testing.assert_close(module(again.to("cpu")), module(TREES[:2]))
    summing = fb.torch.Module(loss_of(fb.Vector(2)), "numpy")
    assert summing.loss(summing.collate([[1, 2]])).item() == 5
    with pytest.raises(ExampleError, match="planned by this program, found one of another program"):
        summing.loss(batches[0])
