"""Modules in graphs of `torch.compile`: the op that stands for a call, and what breaks a graph."""

import copy
import pickle

import pytest

import foldbatch as fb
from foldbatch.errors import BackendError, ParameterError
from tests.backends import LLVM, TESTED

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install -e '.[torch]'")

from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402

from foldbatch.torch import library  # noqa: E402
from tests.torch.models import TREES, loss_of, tree_of  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of PyTorch's own
BATCHES = [TREES, TREES[:3], TREES[1:2], [], TREES * 2]


class Whole(torch.nn.Module):
    """A module of ours between two of PyTorch's, whose own loss is added."""

    def __init__(self, backend=TESTED, dropout=0.0):
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(3, 4)
        self.tree = fb.torch.Module(tree_of(dropout=dropout), backend, seed=0, fresh=True)
        self.summing = fb.torch.Module(loss_of(tree_of()), backend, seed=1, fresh=True)
        self.last = torch.nn.Linear(4, 1)

    def forward(self, x, trees, others):
        scores = self.last(self.tree(trees) + torch.tanh(self.first(x)))
        return scores.square().sum() + self.summing.loss(others)

    def prepared(self, examples):
        return self.tree.prepare(examples), self.summing.prepare(examples)


def gradients_of(model, loss):
    """The gradients of all parameters, zeros of those that no call reads."""
    return torch.autograd.grad(loss, [*model.parameters()], allow_unused=True, materialize_grads=True)


@pytest.fixture(autouse=True)
def anew():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


@pytest.mark.parametrize("compiler", ["eager", "aot_eager", "aot_eager_decomp_partition"])
def test_a_model_with_prepared_batches_is_one_graph(compiler):
    whole = Whole()
    counting = CompileCounterWithBackend(compiler)
    compiled = torch.compile(whole, backend=counting, fullgraph=True)
    for number, examples in enumerate(BATCHES):
        x = torch.randn(max(1, len(examples)), 3) if examples else torch.randn(0, 3)
        loss, right = compiled(x, *whole.prepared(examples)), whole(x, examples, examples)
        torch.testing.assert_close(loss, right)
        for found, expected in zip(gradients_of(whole, loss), gradients_of(whole, right), strict=True):
            torch.testing.assert_close(found, expected)
        if number:
            assert counting.frame_count <= 4  # PyTorch compiles anew for 0 and 1
    for examples in (TREES[:2], TREES[1:], TREES * 3):
        compiled(torch.randn(len(examples), 3), *whole.prepared(examples))
    assert counting.frame_count <= 4
    assert not torch._dynamo.utils.counters["graph_break"]
    assert not library._WAITING


@pytest.mark.parametrize("backend", [TESTED, *LLVM])
def test_a_compiled_model_trains_to_the_same_numbers(backend):
    trained = []
    for compiler in (None, "aot_eager"):
        whole = Whole(backend, dropout=0.5)
        model = whole if compiler is None else torch.compile(whole, backend=compiler, fullgraph=True)
        optimizer = torch.optim.Adam(whole.parameters(), 0.05)
        torch.manual_seed(4)
        for step in range(6):
            examples = TREES[: 2 + step % 3]
            optimizer.zero_grad()
            model(torch.randn(len(examples), 3), *whole.prepared(examples)).backward()
            optimizer.step()
        trained.append(whole.state_dict())
    for name, value in trained[0].items():
        assert torch.equal(trained[1][name], value), name


class Called(torch.nn.Module):
    """A model that calls a module once."""

    def __init__(self, module):
        super().__init__()
        self.first, self.tree, self.last = torch.nn.Linear(4, 4), module, torch.nn.Linear(4, 1)

    def forward(self, x, trees):
        y = self.first(x)
        return self.last(self.tree(trees) + y).sum()


OTHERS = {
    "examples": (lambda: fb.torch.Module(tree_of(), TESTED), lambda module: TREES),
    "a plan": (lambda: fb.torch.Module(tree_of(), TESTED), lambda module: module.plan(TREES)),
    "sparse": (lambda: fb.torch.Module(tree_of(), TESTED, sparse=True), lambda module: module.prepare(TREES)),
    "a function": (lambda: walk().warm(VECTORS), lambda module: module.prepare(VECTORS)),
}
VECTORS = [[float(k)] * 4 for k in range(4)]


def walk():
    layer = fb.Linear(4, "tanh")
    return fb.torch.Module(lambda x: layer(fb.tensor(x, "float32")), TESTED)


@pytest.mark.parametrize("given", OTHERS)
def test_other_calls_break_a_graph_once_each(given):
    make, batch = OTHERS[given]
    model = Called(make())
    examples, x = batch(model.tree), torch.randn(4, 4)
    explained = torch._dynamo.explain(model)(x, examples)
    assert (explained.graph_count, explained.graph_break_count) == (2, 1)
    torch._dynamo.reset()
    counting = CompileCounterWithBackend("aot_eager")
    loss = torch.compile(model, backend=counting)(x, examples)
    assert counting.frame_count == 2
    right = model(x, examples)
    torch.testing.assert_close(loss, right)
    for found, expected in zip(gradients_of(model, loss), gradients_of(model, right), strict=True):
        torch.testing.assert_close(found.to_dense(), expected.to_dense())


def test_two_calls_of_one_batch_draw_apart_and_gradients_are_their_own():
    module = fb.torch.Module(tree_of(dropout=0.5), TESTED)
    batch = module.prepare(TREES * 4)

    def twice(batch):
        return module(batch), module(batch)

    torch.manual_seed(1)
    right = twice(batch)
    torch.manual_seed(1)
    found = torch.compile(twice, backend="aot_eager_decomp_partition", fullgraph=True)(batch)
    assert not torch.equal(*right)
    for one, other in zip(found, right, strict=True):
        assert torch.equal(one, other)
    parameters = [*module.parameters()]
    for k in (0, 1):
        slopes = [
            torch.autograd.grad(results[k].square().sum(), parameters, retain_graph=True)
            for results in (found, right)
        ]
        for one, other in zip(*slopes, strict=True):
            torch.testing.assert_close(one, other)


def test_eval_and_frozen_parameters_and_no_grad():
    module = fb.torch.Module(loss_of(tree_of(dropout=0.5)), TESTED)
    batch = module.prepare(TREES)
    compiled = torch.compile(lambda batch: module.loss(batch) * 2, backend="aot_eager", fullgraph=True)
    module.eval()
    with torch.no_grad():
        right = module.loss(TREES) * 2
        assert compiled(batch).item() == pytest.approx(right.item())
        assert not library._WAITING
    module.get_parameter("join.bias").requires_grad_(False)
    loss = compiled(batch)
    loss.backward()
    assert loss.item() == pytest.approx(right.item())
    assert module.get_parameter("join.bias").grad is None
    assert module.get_parameter("join.weight").grad.any()


def arguments_of(module, examples, *, losses):
    form = module._form
    dtype = form.of_loss if losses else form.dtype
    shape = () if losses else form.shape
    batch = module.prepare(examples)
    return batch, (batch.key, None, [*module.parameters()], form.number, shape, dtype, losses, True)


@pytest.mark.one_form  # memory of the emulated card begins somewhere inside of a tensor
@pytest.mark.parametrize("losses", [True, False])
def test_the_op_passes_pytorchs_own_checks(losses):
    module = fb.torch.Module(loss_of(tree_of()) if losses else tree_of(), TESTED)
    held, arguments = arguments_of(module, TREES, losses=losses)
    found = torch.library.opcheck(torch.ops.foldbatch.call, arguments)
    assert set(found.values()) == {"SUCCESS"}
    values, ticket = torch.ops.foldbatch.call(*arguments)
    backward = ticket, torch.ones_like(values.detach()), [x.detach() for x in arguments[2]]
    check = "test_autograd_registration"  # others copy the ticket
    torch.library.opcheck(torch.ops.foldbatch.gradients, backward, test_utils=check)
    assert len(held) == len(TREES)


def test_what_a_graph_holds_goes_with_its_tensors():
    module = fb.torch.Module(tree_of(), TESTED)
    compiled = torch.compile(lambda batch: module(batch).sum(), backend="aot_eager", fullgraph=True)
    losses = [compiled(module.prepare(TREES)) for _ in range(3)]
    assert len(library._WAITING) == 3
    losses[0].backward()
    del losses[1:]
    assert not library._WAITING


def test_copies_of_prepared_batches_have_numbers_of_their_own():
    module = fb.torch.Module(tree_of(), TESTED)
    batch = module.prepare(TREES)
    for other in (pickle.loads(pickle.dumps(batch)), copy.copy(batch), copy.deepcopy(batch)):
        assert other.key.shape == batch.key.shape
        assert not torch.equal(other.key, batch.key)
        torch.testing.assert_close(module(other), module(TREES))
    assert len(module.program.describe(batch, compare=False).cells) == len(module.program.model.cells)


def test_what_a_graph_cannot_do_is_refused():
    module = fb.torch.Module(tree_of(), TESTED)
    batch, arguments = arguments_of(module, TREES, losses=False)
    compiled = torch.compile(lambda batch: module(batch).sum(), backend="eager", fullgraph=True)
    (slope, _, _) = torch.autograd.grad(compiled(batch), [*module.parameters()], create_graph=True)
    with pytest.raises(BackendError, match="found gradients of gradients in a graph; compute penalties"):
        slope.sum().backward()
    loss, ticket = torch.ops.foldbatch.call(*arguments)
    with pytest.raises(BackendError, match="kept for its backward pass, found a copy of it"):
        torch.ops.foldbatch.gradients(ticket.clone(), torch.ones_like(loss), [*module.parameters()])
    del batch
    with pytest.raises(BackendError, match="found a graph that has outlived them"):
        torch.ops.foldbatch.call(*arguments)


def test_parameters_that_a_graph_changes_are_refused():
    """A graph changes them when it ends, and the call would compute with the former ones."""
    module = fb.torch.Module(tree_of(), TESTED)
    bias = module.get_parameter("join.bias")

    def changing(batch):
        with torch.no_grad():
            bias.add_(1)
        return module(batch)

    with pytest.raises(ParameterError, match=r"^join\.bias: .* found others, changed in the graph"):
        torch.compile(changing, backend="aot_eager", fullgraph=True)(module.prepare(TREES))


def test_exports_are_refused():
    """They would keep one batch of this process for good."""

    class Holding(Called):
        batch = None

        def forward(self, x):
            return super().forward(x, self.batch)

    model = Holding(fb.torch.Module(tree_of(), TESTED))
    model.batch = model.tree.prepare(TREES)
    with pytest.raises(BackendError, match="expected to be run, found a trace"):
        torch.export.export(model, (torch.randn(4, 4),), strict=False)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="function Module._forward"):
        torch.export.export(model, (torch.randn(4, 4),), strict=True)
