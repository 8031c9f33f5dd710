"""Second derivatives through a module: penalties on gradients, Hessians, and what is refused."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings

import foldbatch as fb
from foldbatch import ops
from foldbatch.errors import BackendError, ExampleError
from tests.backends import LLVM, TESTED
from tests.programs import programs

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install -e '.[torch]'")

from torch.autograd import functional  # noqa: E402

from tests.torch.models import TREES, loss_of, tree_of  # noqa: E402

pytestmark = pytest.mark.one_form  # a card refuses second derivatives, see test_card.py
ENGINES = pytest.mark.parametrize("backend", [TESTED, *LLVM])
X = torch.tensor([[1.0, -2.0, 0.5], [0.3, 0.1, -1.0]], dtype=torch.float64)


def cell(dropout=0.0):
    return fb.Vector(3, "float64") >> fb.Dropout(dropout) >> fb.Linear(2, "tanh", name="cell")


def walked(words):
    state = fb.tensor(np.zeros(2), "float64")
    for word in words:
        state = step(state, fb.tensor(word, "float64"))
    fb.loss(ops.sum(state * state * state))
    return state


mix = fb.Parameter([5, 2, "float64"], "normal", "mix")
step = fb.cell(lambda state, x: ops.tanh(ops.concat([state, x]) @ mix))


@cache
def modules(backend):
    plain = fb.torch.Module(cell(), backend)
    return {
        "plain": plain,
        "mapped": fb.torch.Module(fb.Map(plain.block), backend),
        "summing": fb.torch.Module(loss_of(plain.block), backend),
        "walk": fb.torch.Module(walked, backend, seed=0).warm([X.tolist()]),
    }


WAYS = {
    "results": lambda m, x: m["plain"](list(x)),
    "rows": lambda m, x: m["plain"](fb.torch.rows(x)),
    "nodes": lambda m, x: m["mapped"].nodes([list(x), [], [x[0]]]).values,
    "a loss": lambda m, x: m["summing"].loss(list(x)),
    "results of a function": lambda m, x: m["walk"]([list(x), fb.torch.rows(x)[:1], []]),
    "the loss of a function": lambda m, x: m["walk"].loss([list(x), [x[1]]]),
}


@ENGINES
@pytest.mark.parametrize("way", WAYS)
def test_second_derivatives_are_those_of_differences(way, backend):
    held = modules(backend)
    parameters = [*held["walk" if "function" in way else "plain"].parameters()]
    x = X.clone().requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x, *_: WAYS[way](held, x), (x, *parameters))


def test_second_derivatives_of_a_recursion_that_drops():
    module = fb.torch.Module(loss_of(tree_of(2, "float64", dropout=0.5)), TESTED)
    parameters = [*module.parameters()]

    def dropping(*_):
        torch.manual_seed(1)
        return module.loss(TREES[:3])

    for training in (True, False):
        module.train(training)
        assert torch.autograd.gradgradcheck(dropping, parameters)
        (slope,) = torch.autograd.grad(dropping(), parameters[1], create_graph=True)
        assert slope.any()


@ENGINES
def test_products_with_the_hessian_are_the_programs_own(backend):
    module = fb.torch.Module(loss_of(tree_of()), backend)
    named = dict(module.named_parameters())
    directions = {name: torch.randn_like(parameter) for name, parameter in named.items()}
    slopes = torch.autograd.grad(module.loss(TREES), [*named.values()], create_graph=True)
    along = sum((slope * directions[name]).sum() for name, slope in zip(named, slopes, strict=True))
    products = torch.autograd.grad(along, [*named.values()])
    right = module.program.hvp(TREES, {name: x.numpy() for name, x in directions.items()})
    for name, product in zip(named, products, strict=True):
        np.testing.assert_allclose(product, right[name], rtol=1e-5, atol=1e-6)


class Critic(torch.nn.Module):
    """The model of `critic` by hand: its words are padded, and a mask tells which are there."""

    def __init__(self, module):
        super().__init__()
        for name, parameter in module.named_parameters():
            self.register_parameter(name.replace(".", "_"), torch.nn.Parameter(parameter.detach().clone()))

    def forward(self, words, mask):
        each = torch.tanh(words @ self.word_weight + self.word_bias) * mask[..., None]
        return (torch.tanh(each.sum(1)) @ self.out_weight + self.out_bias)[:, 0]


def critic():
    words = fb.Map(fb.Vector(3) >> fb.Linear(4, "tanh", name="word")) >> fb.Sum()
    return words >> fb.Function(ops.tanh) >> fb.Linear(1, name="out")


LENGTHS = [3, 1, 4]
MASK = torch.tensor([[float(k < n) for k in range(4)] for n in LENGTHS])


def penalised(scores, words):
    """The loss of a critic with the penalty of Gulrajani et al. 2017."""
    (slope,) = torch.autograd.grad(scores.sum(), words, create_graph=True)
    return scores.mean() + 10 * (slope.flatten(1).norm(dim=1) - 1).square().mean()


@ENGINES
def test_a_gradient_penalty_trains_as_by_hand(backend):
    ours = fb.torch.Module(critic(), backend, seed=1)
    hand = Critic(ours)
    optimizers = [torch.optim.Adam(model.parameters(), 0.05) for model in (ours, hand)]
    torch.manual_seed(0)
    for _ in range(4):
        words = torch.randn(3, 4, 3, requires_grad=True)
        rows = fb.torch.rows(words)
        examples = [rows[k][:n] for k, n in enumerate(LENGTHS)]
        losses = penalised(ours(examples)[:, 0], words), penalised(hand(words, MASK), words)
        torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-5)
        for loss, optimizer in zip(losses, optimizers, strict=True):
            optimizer.zero_grad()
            words.grad = None
            loss.backward()
            optimizer.step()
    for own, other in zip(ours.parameters(), hand.parameters(), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-3, atol=1e-4)


def test_a_penalty_on_the_gradients_of_parameters_is_that_by_hand():
    ours = fb.torch.Module(critic(), TESTED, seed=1)
    hand = Critic(ours)
    words = torch.randn(3, 4, 3)
    examples = [list(words[k, :n]) for k, n in enumerate(LENGTHS)]
    found = []
    for model, arguments in ((ours, (examples,)), (hand, (words, MASK))):
        parameters = [*model.parameters()]
        slopes = torch.autograd.grad(model(*arguments).square().sum(), parameters, create_graph=True)
        sum(slope.square().sum() for slope in slopes).backward()
        found.append([parameter.grad for parameter in parameters])
    for own, other in zip(*found, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-4)


def test_functions_of_torch_autograd_that_differentiate_twice():
    held = modules(TESTED)
    for way in WAYS.values():

        def scalar(x, way=way):
            return way(held, x).square().sum()

        hessian = functional.hessian(scalar, X).reshape(6, 6)
        torch.testing.assert_close(hessian, hessian.T)
        assert hessian.any()
        torch.testing.assert_close(functional.vhp(scalar, X, X)[1].flatten(), hessian @ X.flatten())
        slope = functional.vjp(scalar, X)[1]
        torch.testing.assert_close(functional.jvp(scalar, X, X)[1], (slope * X).sum())


@pytest.mark.parametrize("way", WAYS)
def test_third_derivatives_are_refused_whatever_gradient_comes_in(way):
    """A penalty on a Hessian would add nothing otherwise."""
    held = modules(TESTED)
    x = X.clone().requires_grad_()
    (slope,) = torch.autograd.grad(WAYS[way](held, x).sum(), x, create_graph=True)
    (twice,) = torch.autograd.grad(slope.square().sum(), x, create_graph=True)
    assert twice.requires_grad
    attempts = [
        lambda: twice.sum().backward(retain_graph=True),
        lambda: torch.autograd.grad(twice.sum(), x, retain_graph=True),
        lambda: functional.hvp(lambda x: WAYS[way](held, x).sum(), X, X),
    ]
    for attempt in attempts:
        with pytest.raises(
            BackendError, match="expected first and second derivatives, found a third derivative"
        ):
            attempt()


def test_incoming_gradients_are_differentiated_too():
    held = modules(TESTED)
    x, scale = X.clone().requires_grad_(), torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    for way in WAYS.values():
        (slope,) = torch.autograd.grad((way(held, x) * scale).sum(), x, create_graph=True)
        (alone,) = torch.autograd.grad(way(held, x).sum(), x)
        (found,) = torch.autograd.grad(slope.sum(), scale)
        torch.testing.assert_close(found, alone.sum())


def test_examples_with_tensors_stand_between_others_and_dtypes_differ():
    module = fb.torch.Module(fb.Map(fb.Vector(3, "float64") >> fb.Linear(2, "tanh")) >> fb.Sum(), TESTED)
    known = module.prepare([[[1.0, 2.0, 3.0]] * 2])
    x = X.clone().requires_grad_()

    def penalty(x, examples):
        (slope,) = torch.autograd.grad(module(examples).square().sum(), x, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), x)[0]

    right = penalty(x, [list(x)])
    torch.testing.assert_close(penalty(x, [*known, list(x), *known]), right)
    half = X.float().requires_grad_()
    found = penalty(half, [[half[0], X[1]], list(half[1:]), [[0.0, 0.0, 0.0]]])
    assert found.dtype == torch.float32
    assert found.any()


def test_parameters_that_no_call_reads_have_no_second_derivative():
    heads = {name: fb.GetItem(1) >> fb.Vector(2) >> fb.Linear(1, "tanh", name=name) for name in "ab"}
    module = fb.torch.Module(fb.OneOf(fb.GetItem(0), heads), TESTED)
    module.get_parameter("a.bias").requires_grad_(False)
    weights = [module.get_parameter(f"{name}.weight") for name in "ab"]
    slopes = torch.autograd.grad(module([("a", [1, 2])]), weights, create_graph=True, allow_unused=True)
    assert slopes[1] is None
    products = torch.autograd.grad(slopes[0].square().sum(), weights, allow_unused=True)
    assert products[0].any()
    assert products[1] is None


def test_sparse_gradients_are_differentiated_as_dense_ones():
    found = []
    for sparse in (True, False):
        module = fb.torch.Module(loss_of(tree_of()), TESTED, sparse=sparse, seed=0)
        words = module.get_parameter("words.weight")
        (slope,) = torch.autograd.grad(module.loss(TREES), words, create_graph=True)
        assert slope.is_sparse == sparse
        (product,) = torch.autograd.grad(slope.to_dense().square().sum(), words)
        found.append(product.to_dense())
    torch.testing.assert_close(*found)
    assert found[0].any()


def test_parameters_changed_in_between_are_pytorchs_error():
    module = fb.torch.Module(loss_of(tree_of()), TESTED)
    bias = module.get_parameter("join.bias")
    (slope,) = torch.autograd.grad(module.loss(TREES), bias, create_graph=True)
    with torch.no_grad():
        bias.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        slope.sum().backward()


def test_a_budget_of_memory_holds_for_second_derivatives():
    rng = np.random.default_rng(0)
    words = [torch.tensor(rng.normal(size=(length, 3)), requires_grad=True) for length in (50, 40, 30)]

    def penalty(memory):
        options = {"memory": memory}
        module = fb.torch.Module(walked, TESTED, seed=0, fresh=True, threads=1, options=options)
        module.warm([[[1.0, 2.0, 3.0]]])
        slopes = torch.autograd.grad(module.loss(words), words, create_graph=True)
        penalty = sum(slope.square().sum() for slope in slopes)
        found = torch.autograd.grad(penalty, [*words, *module.parameters()])
        return module.program, found

    (_, right), (bounded, found) = penalty(None), penalty(30_000)
    for own, other in zip(found, right, strict=True):
        torch.testing.assert_close(own, other)
    duals = [
        pool.runner
        for variant in bounded._variants._built.values()
        for pool in variant.ready.derivatives._duals.values()
    ]
    traces = bounded._trace_all([word.tolist() for word in words])
    assert [any(part.windows for part in dual._bounded(traces, training=True)) for dual in duals] == [True]
    with pytest.raises(BackendError, match="memory: expected a batch that needs at most 8,000 bytes"):
        penalty(8_000)


def moving(example):
    """Return an example with tensors that require gradients in place of lists of floats, and these."""
    if isinstance(example, dict):
        parts = {key: moving(part) for key, part in example.items()}
        return {key: part for key, (part, _) in parts.items()}, [x for _, xs in parts.values() for x in xs]
    if isinstance(example, list | tuple) and not (example and {*map(type, example)} == {float}):
        parts = [moving(part) for part in example]
        return type(example)([part for part, _ in parts]), [x for _, xs in parts for x in xs]
    if isinstance(example, list | tuple):
        tensor = torch.tensor(example, dtype=torch.float64, requires_grad=True)
        return tensor, [tensor]
    return example, []


def floats_in(value):
    if isinstance(value, tuple | list):
        return [x for part in value for x in floats_in(part)]
    return [value] if isinstance(value, torch.Tensor) and value.requires_grad else []


STEP = 1e-4


@settings(max_examples=8)
@given(programs(dropout=True).filter(lambda program: "Broadcast" not in repr(program.block)))
def test_second_derivatives_of_any_program_are_those_of_differences(drawn):
    module = fb.torch.Module(drawn.block, TESTED, seed=drawn.seed)
    examples, tensors = moving(drawn.examples)
    try:
        module.program.prepare(examples)
    except ExampleError as error:  # a matrix may not be a list of tensors, nor hold one that needs gradients
        if "found list" in str(error):
            examples, tensors = drawn.examples, []
    inputs = [*tensors, *(p for p in module.parameters() if p.requires_grad)]
    draw = torch.Generator().manual_seed(drawn.seed)

    def like(tensors):
        return [torch.randn(x.shape, generator=draw, dtype=x.dtype) for x in tensors]

    def results():
        torch.manual_seed(drawn.seed % 1000)
        return floats_in(list(module(examples)))

    values = results()
    if not (values and inputs):
        return
    cotangents = [u.requires_grad_() for u in like(values)]

    def slopes(create_graph=False):
        found = torch.autograd.grad(
            results(), inputs, cotangents, create_graph=create_graph, allow_unused=True
        )
        return [x for x in found if x is not None]

    first = slopes(create_graph=True)
    v = like(first)
    along = sum((slope * direction).sum() for slope, direction in zip(first, v, strict=True))
    moved = [*inputs, *cotangents]
    if not isinstance(along, torch.Tensor) or not along.requires_grad:
        return
    products = torch.autograd.grad(along, moved, allow_unused=True)
    d = like(moved)
    found = sum((p * x).sum().item() for p, x in zip(products, d, strict=True) if p is not None)

    def at(distance):
        with torch.no_grad():
            for x, direction in zip(moved, d, strict=True):
                x += distance * direction
        value = sum((s * x).sum().item() for s, x in zip(slopes(), v, strict=True))
        with torch.no_grad():
            for x, direction in zip(moved, d, strict=True):
                x -= distance * direction
        return value

    right = (8 * (at(STEP) - at(-STEP)) - (at(2 * STEP) - at(-2 * STEP))) / (12 * STEP)
    scale = max(1.0, abs(right), abs(along.item()))
    assert found == pytest.approx(right, rel=1e-6, abs=1e-6 * scale)
