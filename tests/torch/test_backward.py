"""A held batch as a function of PyTorch."""

import threading
from functools import cache, partial

import pytest

import foldbatch as fb
from foldbatch.errors import BackendError, FoldbatchError
from foldbatch.params.parameters import Parameter

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install -e '.[torch]'")

from torch.autograd import forward_ad  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from foldbatch.torch.gradients import settle  # noqa: E402
from tests.torch.models import loss_of  # noqa: E402

X = torch.tensor([[1.0, -2.0, 0.5], [0.3, 0.1, -1.0]], dtype=torch.float64)


@pytest.mark.one_form
def test_parameters_come_home_before_an_optimizer_writes_to_them():
    """On a device the array is stale: what would be added to it would be lost."""

    class Away:
        stays = False

        def __init__(self):
            self.lock = threading.Lock()

        def read_into(self, array):
            array[...] = 7

    parameter = Parameter([2], 0.0)
    view = torch.from_numpy(parameter.value)
    parameter.take_away(Away())
    settle([parameter])
    assert view.tolist() == [7, 7]
    view += 1
    assert parameter.value.tolist() == [8, 8]


def cell(dropout=0.0):
    return fb.Vector(3, "float64") >> fb.Dropout(dropout) >> fb.Linear(2, "tanh", name="cell")


@cache
def modules():
    plain = fb.torch.Module(cell(), "numpy")
    return (
        plain,
        fb.torch.Module(fb.Map(plain.block), "numpy"),
        fb.torch.Module(loss_of(plain.block), "numpy"),
    )


@pytest.fixture(autouse=True, scope="module")
def _anew(form):
    """Modules of the form that is tested."""
    modules.cache_clear()


def of_results(x):
    return modules()[0](list(x)).sum()


def of_rows(x):
    return modules()[0](fb.torch.rows(x)).sum()


def of_nodes(x):
    return modules()[1].nodes([list(x), []]).values.sum()


def of_loss(x):
    return modules()[2].loss(list(x))


WAYS = [of_results, of_rows, of_nodes, of_loss]


@pytest.mark.filterwarnings("ignore")  # of PyTorch's own
@pytest.mark.parametrize("way", WAYS)
def test_other_ways_to_differentiate_are_refused(way):
    """Forward mode, and what hides a tensor's numbers."""
    assert modules()  # made before numbers are hidden
    with forward_ad.dual_level(), pytest.raises(BackendError, match="found a dual tensor"):
        way(forward_ad.make_dual(X, X))
    transforms = [torch.func.grad, torch.func.vmap, torch.func.hessian, torch.func.jacfwd]
    for attempt in (*(transform(way) for transform in transforms), partial(torch.func.jvp, way)):
        with pytest.raises(FoldbatchError):
            attempt(*(((X,), (X,)) if isinstance(attempt, partial) else (X,)))
    x = X.clone().requires_grad_()
    with pytest.raises(BackendError, match="one gradient at a time"):
        torch.autograd.grad(way(x) * torch.ones(2), x, torch.eye(2), is_grads_batched=True)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("nested", [False, True])
def test_a_pass_made_again_drops_the_same(reentrant, nested):
    """Gradients under activation checkpointing are those of the loss that was computed: by finite differences."""
    module = fb.torch.Module(cell(dropout=0.5), "numpy")
    weight = module.get_parameter("cell.weight")

    def twice(x):
        return module(list(x)) * module(list(x))

    def again(x):
        return checkpoint(twice, x, use_reentrant=reentrant) if nested else twice(x)

    def whole():
        torch.manual_seed(3)
        x = X.repeat(8, 1).requires_grad_()
        return checkpoint(again, x, use_reentrant=reentrant).sum() + again(x).sum()

    first = whole()
    first.backward()
    slope, step = weight.grad.clone(), 1e-6
    assert torch.equal(whole(), first)  # a seed of PyTorch's makes a run repeatable
    for place in ((0, 0), (2, 1)):
        values = []
        for change in (step, -2 * step):
            with torch.no_grad():
                weight[place] += change
            values.append(whole().item())
        with torch.no_grad():
            weight[place] += step
        assert (values[0] - values[1]) / (2 * step) == pytest.approx(slope[place].item(), rel=1e-5)


class Whole(torch.nn.Module):
    """A module of ours between two of PyTorch's."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(3, 3).double()
        self.inner = fb.torch.Module(loss_of(fb.Map(cell()) >> fb.Sum()), "numpy")
        self.cell = fb.torch.Module(cell(), "numpy")
        self.last = torch.nn.Linear(2, 1).double()

    def forward(self, x):
        y = self.first(x)
        return self.last(self.cell(fb.torch.rows(y))).sum() + self.inner.loss([list(y)])


@pytest.mark.filterwarnings("ignore")  # of PyTorch's own
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_torch_compile_leaves_modules_out_of_its_graphs(backend):
    whole = Whole()
    x = X.clone().requires_grad_()
    compiled = torch.compile(whole, backend=backend)
    found = compiled(x)
    slopes = torch.autograd.grad(found, [x, *whole.parameters()], allow_unused=True)
    right = whole(x)
    torch.testing.assert_close(found, right)
    expected = torch.autograd.grad(right, [x, *whole.parameters()], allow_unused=True)
    for a, b in zip(slopes, expected, strict=True):
        assert (a is None) == (b is None)
        assert a is None or torch.allclose(a, b)
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(whole, backend=backend, fullgraph=True)(x)


def depth(node):
    return 1 + max([depth(child) for child in node], default=0)


LOOKS = {
    "words": lambda tree: [len(word) for word in tree.words()],
    "children": lambda tree: [child.index for child in tree.children] + [0],
    "nodes": lambda tree: [node.index for node in tree.nodes()],
    "items": lambda tree: [len(tree), *[node.size for node in tree[:1]], hash(tree) % 7],
    "recursion": lambda tree: [depth(tree), tree.height],
}


class OverTrees(torch.nn.Module):
    def __init__(self, look):
        super().__init__()
        self.look = look
        self.embed = torch.nn.Embedding(10, 4)
        leaves = fb.InputTransform(len) >> fb.Scalar("int32") >> fb.Embedding(10, 4)
        self.tree = fb.torch.Module(leaves, "numpy")

    def forward(self, trees):
        found = [self.embed(torch.tensor(self.look(tree))).sum() for tree in trees]
        return torch.stack(found) * self.tree(trees).sum()


@pytest.mark.filterwarnings("ignore")  # of PyTorch's own
@pytest.mark.parametrize("look", LOOKS)
def test_torch_compile_calls_what_trees_have(look):
    whole = OverTrees(LOOKS[look])
    torch._dynamo.reset()
    compiled = torch.compile(whole, backend="eager")
    for text in "(S (A one) (B (C of) (D three)))", "(S (A two) (B (C of) (D four) (E six)))":
        batch = [fb.trees.parse_brackets(text), fb.trees.parse_brackets("(X y)")]
        found = compiled(batch)
        torch.testing.assert_close(found, whole(batch))
        found.sum().backward()


@pytest.mark.filterwarnings("ignore")  # of PyTorch's own
def test_traces_and_exports_are_refused():
    """They would keep the results of one batch for good."""
    module = fb.torch.Module(cell(), "numpy")
    with pytest.raises(BackendError, match="expected to be run, found a trace"):
        torch.jit.trace(lambda x: module(list(x)), (X,), check_trace=False)
    with pytest.raises(BackendError, match="expected to be run, found a trace"):
        torch.export.export(module, ([X[0]],), strict=False)
    with pytest.raises(RuntimeError):
        torch.jit.script(module)
